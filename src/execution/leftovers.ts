/** What lies in the state folder and belongs to nothing any more, for `gc`. Names only, until it is told to remove. */
import { readdir, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isAbsent } from "./attempt-folder.ts";
import { orphans } from "./processes.ts";

export interface LeftoverPlaces {
  readonly runs: string;
  /** The store's file; null where it is on a server. */
  readonly storeFile: string | null;
}

/** A folder of an attempt. */
export interface AttemptFolder {
  readonly name: string;
  readonly attemptId: string;
  /** When something in it was last made or renamed. */
  readonly changedAt: number;
}

const namesIn = async (folder: string): Promise<readonly string[]> => {
  try {
    return await readdir(folder);
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
};

/** The attempts' folders, without those that a live process carries the mark of. */
export async function attemptFolders({ runs }: LeftoverPlaces): Promise<readonly AttemptFolder[]> {
  const alive = new Set(orphans().map(({ attemptId }) => attemptId));
  const found: AttemptFolder[] = [];
  for (const name of await namesIn(runs)) {
    const [attemptId = "", token] = name.split(".");
    if (token === undefined || !/^\d+$/.test(token) || alive.has(attemptId)) continue;
    const seen = await stat(join(runs, name)).catch(() => null); // gone meanwhile
    if (seen !== null && seen.isDirectory()) found.push({ name, attemptId, changedAt: seen.mtimeMs });
  }
  return found;
}

export async function removeAttemptFolder({ runs }: LeftoverPlaces, name: string): Promise<void> {
  await rm(join(runs, name), { recursive: true, force: true });
}

/** What was made beside the store and is old enough to go. Paths. */
export interface StoreLeftovers {
  /** Written by processes that are gone. */
  readonly unfinished: readonly string[];
  /** Copies before an upgrade, beyond the newest. */
  readonly upgrades: readonly string[];
  /** Stores that a restore has replaced. */
  readonly replaced: readonly string[];
}

const UNFINISHED = /\.(\d+)\.partial$/;
const BEFORE_UPGRADE = /^before-\d+-to-\d+-(\d{8}T\d{6}Z)(?:-\d+)?\.db$/;

/** @param keep copies before an upgrade that stay */
export async function storeLeftovers({ storeFile }: LeftoverPlaces, keep: number): Promise<StoreLeftovers> {
  if (storeFile === null) return { unfinished: [], upgrades: [], replaced: [] };
  const folder = dirname(storeFile);
  const backups = join(folder, "backups");
  const [here, copies] = await Promise.all([namesIn(folder), namesIn(backups)]);
  const isLeft = (name: string): boolean => {
    const pid = Number(UNFINISHED.exec(name)?.[1] ?? 0);
    return pid > 0 && !isAlive(pid);
  };
  const stamp = (name: string): string => BEFORE_UPGRADE.exec(name)?.[1] ?? "";
  const upgrades = copies
    .filter((name) => BEFORE_UPGRADE.test(name))
    .toSorted((a, b) => (stamp(a) < stamp(b) ? -1 : stamp(a) > stamp(b) ? 1 : 0));
  return {
    unfinished: [
      ...here.filter(isLeft).map((name) => join(folder, name)),
      ...copies.filter(isLeft).map((name) => join(backups, name)),
    ],
    upgrades: upgrades.slice(0, Math.max(0, upgrades.length - keep)).map((name) => join(backups, name)),
    replaced: here.filter((name) => /^replaced-\d{8}T\d{6}Z(?:-\d+)?$/.test(name)).map((name) => join(folder, name)),
  };
}

export const removeLeftover = (path: string): Promise<void> => rm(path, { recursive: true, force: true });

/** Whether a process is there, whoever's it is. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
