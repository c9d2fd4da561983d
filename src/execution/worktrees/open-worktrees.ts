/** Worktrees by the real git: made so that a death at any moment leaves nothing in the way, removed only when they hold nothing. */
import { existsSync, lstatSync, mkdirSync, readdirSync, realpathSync, renameSync, rmdirSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, normalize, relative, resolve, sep } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { Escape } from "../../core/escape.ts";
import type { Limits } from "../../core/limits.ts";
import type {
  Handoff,
  HandoffWish,
  MadeWorktree,
  RemovedWorktree,
  WorktreeOrder,
  WorktreeState,
  Worktrees,
} from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { isFull, statOf } from "../attempt-folder.ts";
import type { ProcessTable } from "../processes.ts";
import { readRepository } from "../repository.ts";
import { endAbandonedGit } from "./abandoned.ts";
import { condemn, recover, removeFolder, setAside } from "./aside.ts";
import { chooseBase, commitOf, fetchOrigin, type Origin } from "./base.ts";
import { commitsOnlyOn, dropBranch, takeBranch } from "./branch.ts";
import { handOff } from "./handoff.ts";
import { type GitLimits, noSpaceForTree, openGitAt, type Workspace, workspaceError } from "./git.ts";
import {
  type Eyes,
  type Inventory,
  namesOf,
  originsOf,
  ownCommits,
  ownGitFolder,
  readStatus,
  takeInventory,
} from "./inventory.ts";
import { changesSince, noteCheckouts } from "./main-checkout.ts";
import { gitFolderOf, type Marker, readMarker, registrationsOf, unregister, writeMarker } from "./marker.ts";
import { placeOf } from "./names.ts";
import { type Occupant, occupantsOf } from "./occupants.ts";
import { commonOf, isThere, isUnknown, locate, type Place, realPlace, treesBelow } from "./place.ts";
import { rescue, rescueCommit } from "./rescue.ts";
import { censored, censorOf, keepFingerprints } from "./secrets-of-tree.ts";
import { queues, shared } from "./turns.ts";
import { shellWord } from "../../core/shell-word.ts";

/** What the worktrees of a host need. */
export interface WorktreesOptions {
  /** Folder of all trees, `worktrees/` of the state. */
  readonly root: string;
  /** The daemon's own environment. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly limits: Pick<Limits, keyof GitLimits>;
  readonly table: ProcessTable;
  readonly log: (message: string) => void;
  /** Folder of all attempts. */
  readonly runs: string;
  /**
   * Only looks: what a dead daemon left half done is not mended, as whoever does not hold the daemon's lock must not. Makes and
   * removals are not for this one.
   */
  readonly looksOnly?: boolean;
}

/** A tree below the root that no record knows, in the form of a record whose run is not known. */
export interface StrayWorktree {
  readonly record: WorktreeRecord;
  readonly state: WorktreeState;
}

/** The port, and what operations and watchers ask beside it. */
export interface HostWorktrees extends Worktrees {
  /**
   * Trees below the root that are none of these, decided by what is on the disk. @param known paths of records
   * @param most so many are looked into at most
   */
  strays(known: readonly string[], most?: number): Promise<readonly StrayWorktree[]>;
  /**
   * Pushes a run's branch and opens its pull request, each once, however often it is done. Errors: AppError conflict
   * `no_commits`, `branch_gone`, `branch_moved`, `push_refused`; unreachable `push_failed`, `pull_request_failed`; `workspace`.
   */
  handOff(record: WorktreeRecord, wish: HandoffWish): Promise<Handoff>;
  /** Whether HEAD of a folder's checkout has no such file, and a tree would be made for it. @param file from the folder on */
  lacks(cwd: string, file: string): Promise<boolean>;
  /** Whether a folder is below the top of its checkout and git knows no file in it: then `auto` makes no tree for it. */
  isUnknown(cwd: string): Promise<boolean>;
}

/** A tree that was made this short a time ago may have a record that whoever looks for strays has not seen. */
const YOUNG_MS = 600_000;
/** Free space below which a checkout that failed without saying why had no room. */
const ROOM_BYTES = 1_048_576;
const SUBMODULES_FILE = ".gitmodules";

/** The worktrees of this host. One for each process and root: makes and removals on one repository wait for each other. */
export function openWorktrees(options: WorktreesOptions): HostWorktrees {
  const { root, limits, table, log, runs } = options;
  const at = openGitAt(options.environment, table, limits);
  const eyes: Eyes = { at, table, limits, environment: at(root).environment };
  /** By a tree's path: what is done to one tree. By a repository: writes to what its trees share, always inside the other. */
  const inTurn = queues();
  const fetches = new Map<string, (unwanted?: AbortSignal) => Promise<Origin>>();
  /** Trees that were made lately, or are being made, and when. */
  const young = new Map<string, number>();

  /**
   * What a daemon that was killed left: git that works on, and trees half removed. Before anything else: it would write into
   * what is made anew, and a tree that waits for its verdict must not look gone.
   */
  let recovery: Promise<void> | null = null;
  const recovered = (): Promise<void> => {
    recovery ??=
      options.looksOnly === true ? Promise.resolve() : endAbandonedGit(root, table, log).then(() => recover(root, log));
    return recovery;
  };

  /** Fetches once for all who ask while a fetch is awaited, but never with one that began before they asked. */
  const fetchFor = ({ common }: Place, unwanted: AbortSignal | undefined): Promise<Origin> => {
    let fetch = fetches.get(common);
    if (fetch === undefined) {
      fetch = shared((byNobody) => fetchOrigin(at(common, byNobody), limits));
      fetches.set(common, fetch);
    }
    return unless(unwanted, fetch(unwanted));
  };

  const make = async (order: WorktreeOrder, unwanted?: AbortSignal): Promise<MadeWorktree | null> => {
    await recovered();
    const place = await locate(order.cwd, (folder) => at(folder, unwanted));
    if (place === null) {
      if (order.mode === "auto") return null;
      throw workspaceError(`${order.cwd} is in no git repository`, {
        path: order.cwd,
        hint: "Name a folder of one, or work without a tree of its own with --worktree off.",
      });
    }
    // A folder without a single file that git knows would be missing in the tree: what is in it is what it is about.
    if (order.mode === "auto" && (await isUnknownAt(place, order.cwd))) return null;
    mkdirSync(dirname(order.path), { recursive: true, mode: 0o700 });
    const path = realPlace(order.path);
    return inTurn(path, async () => {
      remember(path);
      await clear(path, place.common, order.runId);
      try {
        return await build(order, place, path, unwanted);
      } catch (error) {
        await clear(path, place.common, order.runId).catch((again: unknown) =>
          log(`the worktree ${path} could not be cleared: ${String(again)}`),
        );
        throw error;
      } finally {
        remember(path);
      }
    });
  };

  const remember = (path: string): void => {
    const now = performance.now();
    for (const [other, at] of young) if (now - at > YOUNG_MS) young.delete(other);
    young.set(path, now);
  };

  /** Every step can be the last one: the branch comes at the end, in one write, so until then there is nothing but the tree. */
  const build = async (
    order: WorktreeOrder,
    place: Place,
    path: string,
    unwanted: AbortSignal | undefined,
  ): Promise<MadeWorktree> => {
    const base = await chooseBase(place.git, await fetchFor(place, unwanted));
    const { git, common } = place;
    // By `--detach` no branch and no configuration is written.
    await inTurn(common, () =>
      git.ask("the worktree could not be made", [
        "worktree",
        "add",
        "--detach",
        "--no-checkout",
        "--",
        path,
        base.commit,
      ]),
    );
    const tree = at(path, unwanted);
    const gitFolder = await ownGitFolder(tree, path);
    const marker: Marker = {
      runId: order.runId,
      cwd: order.cwd,
      base: base.commit,
      baseNote: base.note,
      branch: null,
      untouched: null,
      expected: (order.expected ?? [])
        .map((file) => normalize(join(place.prefix, isAbsolute(file) ? relative(order.cwd, file) : file)))
        .filter((file) => file !== "." && file !== ".." && !file.startsWith(`..${sep}`)),
    };
    writeMarker(gitFolder, marker);
    await checkOut(tree, base.commit);
    if (place.prefix !== "" && !isThere(join(path, place.prefix)))
      throw workspaceError(
        `the folder ${place.prefix} is not in the commit that the worktree begins at, ${base.commit.slice(0, 12)} (${base.note})`,
        {
          path: order.cwd,
          hint: "Commit what is in it, and push that where there is an origin; or work in the folder itself with --worktree off.",
        },
      );
    const { changed } = await readStatus(tree);
    const untouched = changed.length === 0 ? null : ((await readRepository(tree.run))?.digest ?? null);
    const notes = [
      base.note,
      ...(existsSync(join(path, SUBMODULES_FILE)) ? ["submodules are not in it"] : []),
      ...(changed.length === 0 ? [] : [`git calls ${changed.length} of its files changed before anybody touched them`]),
    ];
    const baseNote = notes.join("; ");
    const branch = await inTurn(common, () =>
      takeBranch(order, tree, (chosen) => writeMarker(gitFolder, { ...marker, baseNote, branch: chosen, untouched })),
    );
    return { repository: place.repository, branch, base: base.commit, baseNote };
  };

  const checkOut = async (tree: Workspace, commit: string): Promise<void> => {
    const arguments_ = ["reset", "--hard", "--quiet", "--no-recurse-submodules", commit];
    try {
      await tree.ask("the files could not be checked out", arguments_, { timeoutMs: limits.gitCheckoutMs });
    } catch (error) {
      // Which file it could not write git says; why, not always.
      if (error instanceof AppError && error.code === "workspace" && (await hasNoRoom(tree.folder)))
        throw noSpaceForTree(tree.folder, error);
      throw error;
    }
  };

  /** Refuses what is no leftover of making a tree at `path`; the part of the repository that it belongs to. */
  const leftoverAt = (path: string, common: string, runId: string): void => {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) return;
    const foreign = (what: string) =>
      workspaceError(`${path} is in the way: it is ${what}`, { path, hint: "Look at it, and move it away." });
    if (!found.isDirectory()) throw foreign(found.isSymbolicLink() ? "a link" : "a file");
    const gitFolder = gitFolderOf(path);
    if (gitFolder === null) {
      if (readdirSync(path).length > 0) throw foreign("no worktree of drover's");
      return;
    }
    if (dirname(gitFolder) !== join(common, "worktrees")) throw foreign("a worktree of another repository");
    const marker = readMarker(gitFolder);
    if (marker !== null && marker.runId !== runId) throw foreign(`the worktree of ${marker.runId}`);
  };

  /** Clears what making a tree at this place has left: no process has worked in it. */
  const clear = async (path: string, common: string, runId: string): Promise<void> => {
    leftoverAt(path, common, runId);
    const occupants = existsSync(path) ? await occupantsOf(path, table) : [];
    if (occupants.length > 0) throw workspaceError(`${path} cannot be cleared: ${programsOf(occupants)}`, { path });
    const aside = existsSync(path) ? condemn(root, path) : null;
    await inTurn(common, async () => {
      for (const gitFolder of registrationsOf(common, path)) {
        const { branch, base } = originsOf(readMarker(gitFolder));
        await dropBranch(at(common), { branch, base, given: false, tree: path });
        await unregister(gitFolder);
      }
    });
    if (aside !== null) await removeFolder(aside, log);
  };

  const enter = async (record: WorktreeRecord): Promise<string> => {
    await recovered();
    const { repository, branch, path } = record;
    const refuse = (why: string): AppError =>
      workspaceError(`the worktree ${path} ${why}`, { path, hint: mend(record, branchExists) });
    let branchExists = false;
    if (repository === null || branch === null) throw refuse("was not made");
    const main = at(repository);
    if (!isThere(repository)) throw refuse(`belongs to ${repository}, which is not there`);
    branchExists = (await commitOf(main, `refs/heads/${branch}`)) !== null;
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) throw refuse("is not there any more");
    if (!found.isDirectory()) throw refuse("is no folder any more");
    const real = realpathSync(path);
    const tree = at(real);
    try {
      await ownGitFolder(tree, real);
    } catch (error) {
      if (error instanceof AppError) throw refuse(`is not what drover made: ${error.message}`);
      throw error;
    }
    if ((await commonOf(tree)) !== (await commonOf(main))) throw refuse("belongs to another repository");
    if (!branchExists) throw refuse(`has lost its branch ${branch}`);
    const prefix = await prefixOf(record, repository);
    const inside = join(path, prefix);
    if (!isThere(inside)) throw refuse(`has no folder ${prefix} any more`);
    const realInside = realpathSync(inside);
    if (realInside !== real && !realInside.startsWith(real + sep))
      throw refuse(`has a link in the place of ${prefix}, which leads out of it`);
    return inside;
  };

  /** The place of the record's folder in its checkout. When it is gone there, by its name. */
  const prefixOf = async (record: WorktreeRecord, repository: string): Promise<string> => {
    const place = isThere(record.cwd) ? await locate(record.cwd, at) : null;
    if (place !== null) return place.prefix.replace(/\/$/, "");
    const path = relative(repository, record.cwd);
    return path.startsWith("..") ? "" : path;
  };

  const inventoryOf = async (record: WorktreeRecord): Promise<Inventory> => {
    if (!isThere(root)) {
      const why = `could not be looked at: ${root} is not there`;
      const state: WorktreeState = { there: "whole", holds: [why], commits: 0, diffStat: null, blind: true };
      return { state, occupants: [], tips: [], nested: [], expected: [], ignored: [], blind: true };
    }
    const found = await takeInventory(record.path, record, eyes);
    if (found.state.there === "whole" || record.branch === null) return found;
    // Without its folder there may still be the branch, and nobody would look for it.
    const common = await commonFor(record);
    const commits = common === null ? 0 : await commitsOnlyOn(at(common), record.branch, record.base);
    if (commits === 0) return found;
    const which = commits === 1 ? "1 commit" : `${commits} commits`;
    const holds = [`${which} of its own on the branch ${record.branch}; its folder was removed`];
    return { ...found, state: { ...found.state, holds, commits } };
  };

  const look = async (record: WorktreeRecord): Promise<WorktreeState> => {
    await recovered();
    return inTurn(realPlace(record.path), async () => {
      if (record.state !== "making") return (await inventoryOf(record)).state;
      // Half a checkout looks like work; nobody has worked in it.
      if (!existsSync(record.path)) return NOTHING;
      const occupants = await occupantsOf(realpathSync(record.path), table);
      return { ...NOTHING, there: "whole", holds: occupants.length === 0 ? [] : [programsOf(occupants)] };
    });
  };

  /** The main checkout, and the one that the run was to work in where that is another. */
  const watch = async (record: WorktreeRecord, folder: string): Promise<void> => {
    const gitFolder = gitFolderOf(record.path);
    if (gitFolder === null || record.repository === null) return;
    keepFingerprints(gitFolder, join(runs, folder));
    const place = isThere(record.cwd) ? await locate(record.cwd, at) : null;
    const checkouts = new Set([record.repository, ...(place === null ? [] : [place.git.folder])]);
    await noteCheckouts(gitFolder, [...checkouts], at);
  };

  const escaped = async (record: WorktreeRecord): Promise<Escape | null> => {
    const gitFolder = gitFolderOf(record.path);
    if (gitFolder === null || record.repository === null) return null;
    const changes = await changesSince(gitFolder, record.repository, at);
    const censor = censorOf(gitFolder);
    return changes === null ? null : { ...changes, paths: changes.paths.map(censor) };
  };

  const remove: Worktrees["remove"] = async (record, discard) => {
    await recovered();
    return inTurn(realPlace(record.path), async () => {
      const common = await commonFor(record);
      return record.state === "making" ? removeUnmade(record, common) : removeMade(record, common, discard);
    });
  };

  /** The shared part of the repository that a record's tree belongs to; null when that is gone. */
  const commonFor = async (record: WorktreeRecord): Promise<string | null> => {
    const gitFolder = gitFolderOf(record.path);
    if (gitFolder !== null && isThere(gitFolder)) return commonOf(at(record.path)).catch(() => null);
    const from = record.repository ?? record.cwd;
    if (!isThere(from)) return null;
    return commonOf(at(from)).catch(() => null);
  };

  const removeUnmade = async (record: WorktreeRecord, common: string | null): Promise<RemovedWorktree> => {
    try {
      if (common !== null) await clear(realPlace(record.path), common, record.runId);
      else if (existsSync(record.path)) throw workspaceError("its repository is not there");
      removeParent(record.path);
      return { removed: true, state: NOTHING, note: "it was never made" };
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return { removed: false, state: { ...NOTHING, there: "whole" as const, holds: [error.message] } };
    }
  };

  const removeMade = async (
    record: WorktreeRecord,
    common: string | null,
    discard: boolean,
  ): Promise<RemovedWorktree> => {
    const first = await inventoryOf(record);
    const kept = { removed: false, state: first.state };
    if (first.state.there === "gone") {
      if (first.state.holds.length > 0 && !discard) return kept;
      const refs = await forgetGone(record, common, first.state.holds.length > 0);
      const rescued = refs.length === 0 ? "" : `; what only it had is kept under ${refs.join(", ")}`;
      return { removed: true, state: first.state, note: `its folder had been removed by somebody else${rescued}` };
    }
    if (first.occupants.length > 0 || (first.state.holds.length > 0 && !discard)) return kept;
    if (first.blind || common === null)
      throw workspaceError(`${record.path} ${first.state.holds.join(", ")}; nothing of it could be kept`, {
        path: record.path,
        hint: BY_HAND,
      });
    if (first.nested.length > 0)
      throw workspaceError(`${record.path} holds ${namesOfNested(first.nested)}, which git cannot keep`, {
        path: record.path,
        hint: "Move it away, or remove it, then try again.",
      });
    const path = realPlace(record.path);
    const gitFolder = gitFolderOf(path);
    if (gitFolder === null) throw workspaceError(`${path} is no worktree any more`, { path });
    // Nobody finds it by its name from here on, so what is seen now is what there is. Git, which after a day without it writes
    // down where it finds a tree, has just been in it at its own place.
    const aside = setAside(root, path);
    let last: Inventory;
    let note: string | null = null;
    try {
      last = await takeInventory(aside, record, eyes);
      const mayGo =
        last.occupants.length === 0 &&
        !last.blind &&
        last.nested.length === 0 &&
        (discard || last.state.holds.length === 0);
      if (!mayGo) {
        renameSync(aside, path);
        return { removed: false, state: last.state };
      }
      if (last.state.holds.length > 0) {
        const name = record.runId === "" ? basename(path) : record.runId;
        const { holds } = last.state;
        const { tips, expected } = last;
        const ref = await rescue(at(aside), gitFolder, { name, holds, tips, ignored: expected }, limits);
        note = `given up; what it held is kept under ${ref}`;
        log(`the worktree ${path} is given up; what it held is kept under ${ref}`);
      }
    } catch (error) {
      if (existsSync(aside)) renameSync(aside, path);
      throw error;
    }
    const decided = condemn(root, aside);
    const { branch, base } = record.branch === null ? originsOf(readMarker(gitFolder)) : record;
    await inTurn(common, async () => {
      await dropBranch(at(common), { branch, base, given: last.state.holds.length > 0, tree: path });
      await unregister(gitFolder);
    });
    await removeFolder(decided, log);
    removeParent(record.path);
    young.delete(path);
    const { expected, ignored } = last;
    const lost = ignored.filter((one) => !expected.includes(one));
    if (lost.length > 0) {
      const more = `${lost.length} ${lost.length === 1 ? "path" : "paths"} that git ignores went with it (${namesOf(lost)})`;
      note = note === null ? more : `${note}; ${more}`;
    }
    return { removed: true, state: last.state, note };
  };

  /**
   * Takes the traces of a tree away that somebody else removed. What only its HEAD had is kept, and of a branch that is given
   * up all of it. Answers the refs.
   */
  const forgetGone = async (
    record: WorktreeRecord,
    common: string | null,
    given: boolean,
  ): Promise<readonly string[]> => {
    const refs: string[] = [];
    try {
      rmdirSync(record.path);
    } catch {
      // it was not even an empty folder
    }
    if (common === null) return refs;
    const path = realPlace(record.path);
    const name = record.runId || basename(path);
    await inTurn(common, async () => {
      const registered = registrationsOf(common, path);
      for (const gitFolder of registered) {
        const inside = at(gitFolder);
        const head = await commitOf(inside, "HEAD");
        if (head === null || !(await ownCommits(inside, null, record.base)).adrift) continue;
        const ref = await rescueCommit(inside, name, head);
        if (ref === null) continue;
        refs.push(ref);
        log(`the worktree ${path} is gone; its last commit is kept under ${ref}`);
      }
      const tip = given ? await commitOf(at(common), `refs/heads/${record.branch ?? ""}`) : null;
      const kept = tip === null ? null : await rescueCommit(at(common), name, tip);
      if (kept !== null) refs.push(kept);
      await dropBranch(at(common), { ...record, given, tree: path });
      for (const gitFolder of registered) await unregister(gitFolder);
    });
    removeParent(record.path);
    return refs;
  };

  const strays = async (
    known: readonly string[],
    most = Number.POSITIVE_INFINITY,
  ): Promise<readonly StrayWorktree[]> => {
    await recovered();
    const skipped = new Set(known.flatMap((path) => [resolve(path), realPlace(path)]));
    const found: StrayWorktree[] = [];
    for (const path of treesBelow(root)) {
      if (found.length >= most) break;
      const age = performance.now() - (young.get(realPlace(path)) ?? Number.NEGATIVE_INFINITY);
      if (skipped.has(path) || skipped.has(realPlace(path)) || age < YOUNG_MS) continue;
      const record = await recordOf(path);
      const { state } = await inTurn(realPlace(path), () => inventoryOf(record));
      const { commits, diffStat } = state;
      const told = withoutSecrets(state, censorOf(gitFolderOf(path)));
      found.push({ record: { ...record, commits, diffStat }, state: told });
    }
    return found;
  };

  /** What git and the tree's marker say of it. */
  const recordOf = async (path: string): Promise<WorktreeRecord> => {
    const gitFolder = gitFolderOf(path);
    const marker = gitFolder === null ? null : readMarker(gitFolder);
    const place = gitFolder === null ? null : await locate(path, at).catch(() => null);
    return {
      runId: "",
      hostId: "",
      cwd: marker?.cwd ?? place?.repository ?? path,
      path,
      repository: place?.repository ?? null,
      branch: marker?.branch ?? null,
      base: marker?.base ?? null,
      baseNote: marker?.baseNote ?? null,
      state: "kept",
      keptBecause: null,
      commits: null,
      diffStat: null,
      escaped: null,
      createdAt: Math.round(statOf(path)?.birthtimeMs ?? 0),
      finishedAt: null,
    };
  };

  const isUnknownAt = async ({ prefix }: Place, cwd: string): Promise<boolean> =>
    prefix !== "" && (await isUnknown(at(cwd)));

  const lacks = async (cwd: string, file: string): Promise<boolean> => {
    const place = await locate(cwd, at);
    if (place === null || (await isUnknownAt(place, cwd))) return false;
    const { exit } = await at(cwd).run(["cat-file", "-e", `HEAD:./${normalize(file)}`]);
    return exit !== null && exit !== 0;
  };

  const removeParent = (path: string): void => {
    try {
      if (resolve(dirname(path)) !== resolve(root)) rmdirSync(dirname(path));
    } catch {
      // other trees are in it
    }
  };

  return {
    place: (order) => placeOf(root, order),
    make: (order, unwanted) =>
      inWords("the worktree could not be made", order.path, () =>
        make(order, unwanted).catch((error: unknown) => {
          // A git that was ended says anything, or nothing.
          throw unwanted?.aborted === true ? notWanted() : error;
        }),
      ),
    enter: (record) => inWords("the worktree cannot be entered", record.path, () => enter(record)),
    look: (record) =>
      inWords("the worktree cannot be looked at", record.path, async (censor) =>
        withoutSecrets(await look(record), censor),
      ),
    watch: (record, folder) => inWords("the main checkout cannot be watched", record.path, () => watch(record, folder)),
    escaped: (record) => inWords("the main checkout cannot be looked at", record.path, () => escaped(record)),
    remove: (record, discard) =>
      inWords("the worktree cannot be removed", record.path, async (censor) => {
        const { state, note = null, ...answer } = await remove(record, discard);
        return { ...answer, state: withoutSecrets(state, censor), note: note === null ? null : censor(note) };
      }),
    strays,
    handOff: (record, wish) =>
      inWords("the branch cannot be handed over", record.path, async (censor) => {
        const common = await commonFor(record);
        if (common === null)
          throw workspaceError(`the repository of ${record.path} is not there`, {
            path: record.repository ?? record.cwd,
          });
        const tools = { at, table, limits, environment: options.environment };
        // Two at a time would both find no pull request.
        const handoff = await inTurn(`handoff ${common}`, () => handOff(record, wish, common, tools));
        return { ...handoff, because: handoff.because === null ? null : censor(handoff.because) };
      }),
    isUnknown: (cwd) =>
      inWords("the repository cannot be looked at", cwd, async () => {
        const place = await locate(cwd, at);
        return place !== null && (await isUnknownAt(place, cwd));
      }),
    lacks: (cwd, file) => inWords("the repository cannot be looked at", cwd, () => lacks(cwd, file)),
  };
}

const NOTHING: WorktreeState = { there: "gone", holds: [], commits: 0, diffStat: null };

const BY_HAND =
  "Look at it, and remove the folder by hand; `drover worktree prune` then takes it off the list, and keeps what its branch holds.";

const withoutSecrets = (state: WorktreeState, censor: (text: string) => string): WorktreeState => ({
  ...state,
  holds: state.holds.map(censor),
});

const notWanted = (): AppError => workspaceError("the worktree is not wanted any more");

/** Waits for something only as long as it is wanted. Errors: those of `work`, `workspace`. */
function unless<T>(unwanted: AbortSignal | undefined, work: Promise<T>): Promise<T> {
  if (unwanted === undefined) return work;
  return new Promise((resolve, reject) => {
    if (unwanted.aborted) reject(notWanted());
    unwanted.addEventListener("abort", () => reject(notWanted()), { once: true });
    work.then(resolve, reject);
  });
}

const programsOf = (occupants: readonly Occupant[]): string =>
  occupants.map(({ pid, program }) => `pid ${pid} works in it (${program})`).join(", ");

const namesOfNested = (paths: readonly string[]): string =>
  paths.map((path) => `a repository inside it, ${path}`).join(", ");

/** The command that makes a tree again where it was, for a person. */
function mend({ repository, path, branch, base }: WorktreeRecord, branchExists: boolean): string {
  if (repository === null || branch === null) return "Start the work again.";
  const words = branchExists
    ? ["git", "-C", repository, "worktree", "add", "-f", path, branch]
    : ["git", "-C", repository, "worktree", "add", "-f", "-b", branch, path, base ?? "HEAD"];
  const quoted = words.map(shellWord);
  return `Make it again with \`${quoted.join(" ")}\`.`;
}

/** Says what the file system refuses in the words of a tree. */
async function inWords<T>(
  doing: string,
  path: string,
  work: (censor: (text: string) => string) => Promise<T>,
): Promise<T> {
  // Before anything is done: what the secrets are known by goes with the tree.
  const censor = censorOf(gitFolderOf(path));
  try {
    return await work(censor);
  } catch (error) {
    if (isFull(error)) throw noSpaceForTree(path, error);
    if (error instanceof AppError || !(error instanceof Error && "code" in error)) throw censored(error, censor);
    throw censored(workspaceError(`${doing}: ${error.message}`, { path, cause: error }), censor);
  }
}

async function hasNoRoom(folder: string): Promise<boolean> {
  const disk = await statfs(folder).catch(() => null);
  return disk !== null && (disk.bavail * disk.bsize < ROOM_BYTES || (disk.files > 0 && disk.ffree === 0));
}
