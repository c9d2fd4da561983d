/** The store of this host as a file: copied, and put back. */
import { existsSync, readdirSync } from "node:fs";
import { dirname } from "node:path";
import type { CommandWorld } from "../cli/cli.ts";
import type { StoreFiles } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import { hostIdOf } from "./host.ts";
import { isAlive } from "../execution/leftovers.ts";
import { requireState, takeLocks } from "./state.ts";

type Copy = StoreFiles["copy"];
type Restore = StoreFiles["restore"];

/** Runs of a copy that are ended in one transaction. */
const AT_ONCE = 100;

/** The store's file. Errors: AppError invalid `not_available` on PostgreSQL, with the command that does it there. */
async function storeFile(world: CommandWorld, does: "backup" | "restore"): Promise<string> {
  const { storeFileOf, withoutPassword } = await import("../ops/config/settings.ts");
  const { AppError } = await import("../core/errors.ts");
  const { store } = await world.settings();
  const file = storeFileOf(store, world.places);
  if (file !== null) return file;
  const shown = new URL(withoutPassword(store));
  const schema = shown.searchParams.get("schema");
  for (const own of ["schema", "prepare"]) shown.searchParams.delete(own);
  const of = schema === null ? "" : ` --schema=${schema}`;
  const command =
    does === "backup"
      ? `pg_dump --format=custom${of} --file=drover.dump '${shown.href}'`
      : `pg_restore --clean --if-exists --single-transaction${of} --dbname='${shown.href}' drover.dump`;
  throw new AppError(
    "invalid",
    "not_available",
    `the store is on a PostgreSQL server, whose own tools ${does === "backup" ? "make" : "put back"} copies`,
    {
      hint: `${does === "backup" ? "Run" : "With every daemon of the store down, run"} ${command}`,
      path: "store",
    },
  );
}

const known = async (): Promise<number> => {
  const { migrationsOf, ownMigrations } = await import("../store/migrate.ts");
  return migrationsOf(ownMigrations(), "sqlite").length;
};

export async function copy(world: CommandWorld, { target, reason, keep }: Parameters<Copy>[0]): ReturnType<Copy> {
  await requireState(world.places, "read");
  const file = await storeFile(world, "backup");
  const { backupFolder, copyStore, dropPartials, freeCopy, rotate } = await import("../store/copies.ts");
  const folder = backupFolder(file);
  if (target !== null) await requireFolder(dirname(target));
  const to = target ?? freeCopy(folder, reason, world.clock.now());
  dropPartials(dirname(to), isAlive);
  const contents = copyStore(file, to, { known: await known() });
  return { file: to, contents, removed: target === null ? rotate(folder, `${reason}-`, keep) : [] };
}

/** A folder that somebody named is not made: where a disk is not mounted, the copy would lie on the one it is to save from. */
async function requireFolder(folder: string): Promise<void> {
  if (existsSync(folder)) return;
  const { AppError } = await import("../core/errors.ts");
  throw new AppError("not_found", "folder_not_found", `there is no folder ${folder}`, {
    hint: "Make it first; where it is on a disk of its own, see that the disk is mounted.",
    path: "file",
  });
}

export async function restore(world: CommandWorld, request: Parameters<Restore>[0]): ReturnType<Restore> {
  const { AppError } = await import("../core/errors.ts");
  const { places } = world;
  const file = await storeFile(world, "restore");
  await requireState(places, "write");
  const answer = await world.askDaemon();
  if ("health" in answer)
    throw new AppError("conflict", "daemon_up", `the daemon is up (pid ${answer.health.pid}), and the store is its`, {
      hint: "Stop it with `drover down --stop-runs`, which ends what runs, then ask again.",
    });
  const locks = await takeLocks(world, 0);
  if (!Array.isArray(locks))
    throw new AppError(
      "conflict",
      "busy",
      `another process${locks.owner === null ? "" : ` (pid ${locks.owner})`} holds the lock`,
      {
        hint: "Try again in a moment; `drover down` ends a daemon.",
      },
    );
  try {
    await nothingAtWork(places);
    return await putBack(world, file, request);
  } finally {
    for (const lock of locks) lock.release();
  }
}

/** What runs here is known to the present store only: it would go on unseen. */
async function nothingAtWork({ runs }: Places): Promise<void> {
  const { orphans } = await import("../execution/processes.ts");
  const marked = orphans();
  if (marked.length === 0) return;
  const own = new Set(namesIn(runs).map((folder) => folder.split(".", 1)[0]));
  const left = marked.filter(({ attemptId }) => own.has(attemptId));
  if (left.length === 0) return;
  const { AppError } = await import("../core/errors.ts");
  const pids = left.map(({ pid }) => pid);
  throw new AppError(
    "conflict",
    "attempts_at_work",
    `${pids.length === 1 ? "a process" : `${pids.length} processes`} of runs of this store ${pids.length === 1 ? "is" : "are"} at work (pid ${pids.slice(0, 5).join(", ")}${pids.length > 5 ? ", ..." : ""})`,
    { hint: "`drover up`, then `drover down --stop-runs` ends them; or wait for them." },
  );
}

const namesIn = (folder: string): readonly string[] => {
  try {
    return readdirSync(folder);
  } catch {
    return []; // nothing has run here yet
  }
};

/** Stops this process at a step, for tests of what a crash there leaves. */
function reached(step: string): void {
  if (process.env["DROVER_TEST_KILL"] === step) process.kill(process.pid, "SIGKILL");
}

async function putBack(world: CommandWorld, file: string, request: Parameters<Restore>[0]): ReturnType<Restore> {
  const { dryRun, paused } = request;
  const [{ AppError }, { dropPartials }, { replaceStore, stageCopy }, { openStore }, { operations }] =
    await Promise.all([
      import("../core/errors.ts"),
      import("../store/copies.ts"),
      import("../store/replace.ts"),
      import("../store/open.ts"),
      import("../store/operations.ts"),
    ]);
  const { existsSync, rmSync } = await import("node:fs");
  dropPartials(dirname(file), isAlive);
  const staged = stageCopy(request.file, file, { known: await known() });
  try {
    reached("staged");
    const { limits } = await world.settings();
    const opened = await openStore({
      address: { kind: "sqlite", file: staged.file },
      table: operations,
      clock: world.clock,
      use: "write",
    });
    let [cancelled, atWork, missed, pausedLoops] = [0, 0, 0, 0];
    try {
      const { store } = opened;
      for (let more = true; more; ) {
        const done = await store.restores.endLive({ limit: AT_ONCE, limits });
        cancelled += done.ended;
        atWork += done.atWork;
        more = done.more;
      }
      for (let more = true; more; ) {
        const done = await store.loops.planDue({ cause: "late", limits, forbidPast: "restored" });
        missed += done.loops;
        more = done.more;
      }
      if (paused)
        for (let cursor: string | null = null; ; ) {
          const page: Awaited<ReturnType<typeof store.loops.list>> = await store.loops.list({
            archived: false,
            label: null,
            limit: AT_ONCE,
            cursor,
          });
          for (const loop of page.items.filter(({ status }) => status === "active")) {
            await store.loops.pause({ loopId: loop.id, reason: "restored", limits });
            pausedLoops++;
          }
          cursor = page.next;
          if (cursor === null) break;
        }
      await store.restores.standDown({ hostId: (await hostIdOf(world.places, !dryRun)) || null });
    } finally {
      await opened.close();
    }
    reached("settled");
    const done = { contents: staged.facts, cancelled, atWork, missed, pausedLoops };
    if (dryRun) return { ...done, replaced: null };
    const { runs, lastEventAt } = staged.facts;
    const upTo = lastEventAt === null ? "" : `, up to ${new Date(lastEventAt).toISOString()}`;
    if (
      existsSync(file) &&
      !(await request.confirm(
        `Put this backup (runs: ${runs}${upTo}) in the place of the store ${file}, which is kept beside it?`,
      ))
    )
      throw new AppError("conflict", "not_confirmed", "the store was left as it is", {
        hint: "Nothing was changed.",
        path: file,
      });
    const replaced = replaceStore(staged.file, file, world.clock.now(), reached);
    return { ...done, replaced };
  } finally {
    rmSync(staged.folder, { recursive: true, force: true });
  }
}
