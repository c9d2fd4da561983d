/** Worktrees: the row is there before the folder, and stays when the folder is gone. */
import { AppError, ensure } from "../core/errors.ts";
import type { MadeWorktree, Page, PageRequest } from "../core/ports.ts";
import type { WorktreeRecord } from "../core/records.ts";
import type { RunStatus } from "../core/run.ts";
import { journal } from "./journal.ts";
import { all, finish, many, one, operation, read, readInstant, type Steps } from "./operation.ts";
import { pageOf, readCursor } from "./page.ts";
import { toRun, toWorktree, type Row, type RunRow } from "./rows.ts";
import { forUpdate, sql } from "./sql.ts";

interface Held {
  readonly now: number;
  readonly run: RunRow | null;
  readonly worktree: WorktreeRecord | null;
}

/** Reads a run's worktree under the lock of the run. */
function* held(runId: string): Steps<Held> {
  const [clock, runs, trees] = yield* many<[{ now: number }, Row, Row]>(
    readInstant,
    sql`select * from runs where id = ${runId} ${forUpdate}`,
    sql`select * from worktrees where run_id = ${runId} ${forUpdate}`,
  );
  const now = clock[0]?.now;
  ensure(now !== undefined, "the store has a clock");
  return {
    now,
    run: runs[0] === undefined ? null : toRun(runs[0]),
    worktree: trees[0] === undefined ? null : toWorktree(trees[0]),
  };
}

export const beginWorktree = operation(
  "worktrees.begin",
  function* (input: { runId: string; hostId: string; cwd: string; path: string }): Steps<WorktreeRecord> {
    const { now, run, worktree } = yield* held(input.runId);
    if (worktree !== null) return worktree;
    if (run === null)
      throw new AppError("not_found", "run_not_found", `there is no run ${input.runId}`, {
        hint: "`drover runs` lists the newest runs.",
      });
    yield* finish(
      sql`insert into worktrees (run_id, host_id, cwd, path, state, created_at)
          values (${input.runId}, ${input.hostId}, ${input.cwd}, ${input.path}, 'making', ${now})`,
    );
    return {
      ...input,
      repository: null,
      branch: null,
      base: null,
      baseNote: null,
      state: "making",
      keptBecause: null,
      commits: null,
      diffStat: null,
      escaped: null,
      createdAt: now,
      finishedAt: null,
    };
  },
  { wakes: false },
);

export const madeWorktree = operation(
  "worktrees.made",
  function* (input: { runId: string; made: MadeWorktree | null }): Steps<WorktreeRecord | null> {
    const { now, run, worktree } = yield* held(input.runId);
    if (worktree === null || worktree.state !== "making") return worktree;
    const { made } = input;
    if (made === null) {
      yield* finish(sql`delete from worktrees where run_id = ${input.runId} and state = 'making'`);
      return null;
    }
    const log = run === null ? null : journal("run", run.id, run.eventNumber, now);
    log?.add("worktree.made", { path: worktree.path, branch: made.branch, base: made.base, note: made.baseNote });
    yield* finish(
      sql`update worktrees set state = 'made', repository = ${made.repository}, branch = ${made.branch}, base = ${made.base}, base_note = ${made.baseNote}
          where run_id = ${input.runId} and state = 'making'`,
      ...(log?.writes() ?? []),
    );
    return { ...worktree, ...made, state: "made" };
  },
  { wakes: false },
);

interface Looked {
  readonly runId: string;
  readonly state: "kept" | "removed";
  readonly keptBecause: string | null;
  readonly commits: number | null;
  readonly diffStat: string | null;
}

export const lookedWorktree = operation(
  "worktrees.looked",
  function* (input: Looked): Steps<WorktreeRecord | null> {
    const { now, run, worktree } = yield* held(input.runId);
    if (worktree === null || worktree.state === "removed") return worktree;
    const { runId, ...found } = input;
    const log = run === null ? null : journal("run", run.id, run.eventNumber, now);
    if (worktree.state !== input.state)
      log?.add(`worktree.${input.state}`, {
        path: worktree.path,
        ...(input.keptBecause === null ? {} : { reason: input.keptBecause }),
      });
    const finishedAt = input.state === "removed" ? now : null;
    yield* finish(
      sql`update worktrees set state = ${input.state}, kept_because = ${input.keptBecause}, commits = ${input.commits}, diff_stat = ${input.diffStat},
            finished_at = ${finishedAt} where run_id = ${runId} and state <> 'removed'`,
      ...(log?.writes() ?? []),
    );
    return { ...worktree, ...found, finishedAt };
  },
  { wakes: false },
);

export const getWorktree = read("worktrees.get", function* (input: { runId: string }): Steps<WorktreeRecord | null> {
  const row = yield* one<Row>(sql`select * from worktrees where run_id = ${input.runId}`);
  return row === undefined ? null : toWorktree(row);
});

type Listed = WorktreeRecord & { readonly runStatus: RunStatus | null };

export const listWorktrees = read(
  "worktrees.list",
  function* (
    input: PageRequest & {
      hostId: string | null;
      kept?: boolean;
    },
  ): Steps<Page<Listed>> {
    const [at, id] = readCursor(input.cursor, ["number", "string"]) ?? [Number.MAX_SAFE_INTEGER, "~"];
    const host = input.hostId === null ? sql`` : sql`and w.host_id = ${input.hostId}`;
    const rows = yield* all<Row>(
      sql`select w.*, r.status as run_status from worktrees w left join runs r on r.id = w.run_id
          where w.state <> 'removed' ${input.kept === true ? sql`and w.state = 'kept'` : sql``} and (w.created_at, w.run_id) < (${at}, ${id}) ${host}
          order by w.created_at desc, w.run_id desc limit ${input.limit + 1}`,
    );
    return pageOf(
      rows.map((row) => toWorktree(row) as Listed),
      input.limit,
      (one) => [one.createdAt, one.runId],
    );
  },
);

export const worktreesToTidy = read("worktrees.toTidy", function* (input: { hostId: string; limit: number }): Steps<
  WorktreeRecord[]
> {
  const rows = yield* all<Row>(
    sql`select w.* from worktrees w left join runs r on r.id = w.run_id
          where w.host_id = ${input.hostId} and w.state in ('making', 'made') and (r.id is null or r.finished_at is not null)
          order by w.run_id limit ${input.limit}`,
  );
  return rows.map(toWorktree);
});
