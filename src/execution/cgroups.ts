import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, statSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";

/** Makes a cgroup for each attempt, where this process may: as root, or in a subtree that was delegated to us. */
export interface Cgroups {
  /** A fresh cgroup; null when it cannot be made now. */
  make(folder: string): string | null;
  /** Removes a cgroup that is empty; one that is not is tried again at the next `make`, and at the next opening. */
  remove(cgroup: string): void;
  /** Removes what is empty, and the place itself when nothing is left in it. */
  close(): void;
}

/**
 * Opens the place for our cgroups: a child of our own in the unified hierarchy, named after the runs folder. Null where we
 * may not make one (then trees are found by session, descendants and mark).
 */
export function openCgroups(runsFolder: string): Cgroups | null {
  try {
    const parent = ownCgroup();
    if (parent === null) return null;
    tidyAbandoned(parent);
    const place = join(parent, `drover-${createHash("sha256").update(runsFolder).digest("hex").slice(0, 12)}`);
    mkdirSync(place, { recursive: true });
    // Those of attempts that ended while nobody looked; the kernel refuses the others.
    const tidy = () => {
      // Gone when another spawner of this folder has closed.
      for (const entry of existsSync(place) ? readdirSync(place, { withFileTypes: true }) : []) {
        if (entry.isDirectory()) removeEmpty(join(place, entry.name));
      }
    };
    tidy();
    /** Those whose shim was on its way out. */
    const leaving = new Set<string>();
    const remove = (cgroup: string): void => {
      if (removeEmpty(cgroup)) leaving.delete(cgroup);
      else leaving.add(cgroup);
    };
    // To be allowed to make it is not to be allowed to move into it: the first shim finds out and goes on without.
    return {
      make(folder) {
        for (const one of leaving) remove(one);
        const cgroup = join(place, folder);
        try {
          mkdirSync(cgroup, { recursive: true });
          return cgroup;
        } catch {
          return null; // the limit of cgroups, or the hierarchy was taken from us
        }
      },
      remove,
      close() {
        tidy();
        removeEmpty(place);
      },
    };
  } catch {
    return null; // no cgroup v2 here, or not for us
  }
}

/** Whether a path can only be the cgroup of this attempt: what is read in its folder may name any other, and all in it is ended. */
export const isCgroupOf = (path: string, folder: string): boolean =>
  normalize(path) === path && basename(path) === folder && OURS.test(basename(dirname(path)));

/** Whether `openCgroups` would answer one, without making anything. */
export function canMakeCgroups(): boolean {
  try {
    accessSync(ownCgroup() ?? "/proc/none", constants.W_OK);
    return true;
  } catch {
    return false; // no cgroup v2 here, or not for us
  }
}

/** The folder of the cgroup that this process is in; null without the unified hierarchy. */
function ownCgroup(): string | null {
  const mount = /^\S+ \S+ \S+ \S+ (\S+) [^\n]* - cgroup2 /m.exec(readFileSync("/proc/self/mountinfo", "utf8"))?.[1];
  const own = /^0::(\/.*)$/m.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1];
  return mount === undefined || own === undefined ? null : join(mount, own);
}

/** The place for the cgroups of one runs folder. */
const OURS = /^drover-[0-9a-f]{12}$/;

/** An empty cgroup as old as this is no start on its way. */
const ABANDONED_MS = 60_000;

/** Removes what daemons left that were killed and never came back, such as those of a folder that is gone. */
function tidyAbandoned(parent: string): void {
  const isOld = (path: string) => {
    const found = statSync(path, { throwIfNoEntry: false });
    return found !== undefined && Date.now() - found.mtimeMs > ABANDONED_MS;
  };
  const folders = (path: string) => {
    try {
      return readdirSync(path, { withFileTypes: true }).filter((entry) => entry.isDirectory());
    } catch {
      return []; // another daemon has just removed it
    }
  };
  for (const { name } of folders(parent)) {
    if (!OURS.test(name)) continue;
    const place = join(parent, name);
    for (const child of folders(place)) if (isOld(join(place, child.name))) removeEmpty(join(place, child.name));
    if (isOld(place)) removeEmpty(place);
  }
}

/** Whether it is gone now. EBUSY: something is in it still. */
function removeEmpty(cgroup: string): boolean {
  try {
    rmdirSync(cgroup);
    return true;
  } catch {
    return !existsSync(cgroup);
  }
}
