/** Attempts: handed out, started, adopted, ended. Every write compares the step's token; a repeated end answers from its receipt. */
import type { AgentOutcome, SessionUse, Usage } from "../core/agent.ts";
import { describeDuration } from "../core/duration.ts";
import { ensure } from "../core/errors.ts";
import { type Escape, joinEscapes } from "../core/escape.ts";
import type { Limits } from "../core/limits.ts";
import type { Guarded } from "../core/ports.ts";
import type { Assignment, AttemptRecord, StepResult, StepSpec } from "../core/records.ts";
import { attemptTable, endAttempt, next, stepTable, traceless } from "../core/run.ts";
import { worktreeOf } from "../core/target-parts.ts";
import type { AttemptEnd, AttemptEvent, EndedBy, FailureClass, Outcome, RunStatus, StepStatus } from "../core/run.ts";
import { noUsage, ownUsage, type SessionUsage } from "../core/usage.ts";
import { journal } from "./journal.ts";
import { all, finish, many, one, operation, read, readInstant, type Steps } from "./operation.ts";
import { endUnder } from "./accounts.ts";
import {
  toAccount,
  toAttempt,
  toHeldRun,
  toRun,
  toStep,
  toWorktree,
  type AttemptRow,
  type Row,
  type RunRow,
  type StepRow,
  type StepState,
} from "./rows.ts";
import { followUp, standOf } from "./graph.ts";
import { deskAt, digestOf, endOf, type Desk, type DeskRead } from "./runs.ts";
import { forShare, forUpdate, jsonList, sql, storeNow, type Sql } from "./sql.ts";

/** Attempts with their runs, in the order given. */
export function* assignmentsOf(attempts: readonly Row[]): Steps<Assignment[]> {
  if (attempts.length === 0) return [];
  const [runs, steps] = yield* many<[Row, Row]>(
    sql`select * from runs where id in (${jsonList(attempts.map((row) => row["run_id"] as string))})`,
    sql`select id, key, session_ref, spec from steps where id in (${jsonList(attempts.map((row) => row["step_id"] as string))})`,
  );
  const runOf = new Map(runs.map((row) => [row["id"], toRun(row)]));
  const stepOf = new Map(steps.map((row) => [row["id"], row]));
  const specOf = new Map(
    steps.map((row) => [row["id"], row["spec"] === null ? null : (JSON.parse(row["spec"] as string) as StepSpec)]),
  );
  const runAs = (row: Row): Assignment["run"] | undefined => {
    const run = runOf.get(row["run_id"] as string);
    return run === undefined ? undefined : asStepHasIt(run, specOf.get(row["step_id"] as string) ?? null);
  };
  const more = yield* surroundingsOf(
    attempts,
    attempts.flatMap((row) => runAs(row) ?? []),
  );
  return attempts.flatMap((row) => {
    const run = runAs(row);
    const step = stepOf.get(row["step_id"] as string);
    if (run === undefined) return [];
    return [
      {
        attempt: toAttempt(row),
        run,
        spec: specOf.get(row["step_id"] as string) ?? null,
        stepKey: (step?.["key"] as string | undefined) ?? "main",
        ...more(row, (step?.["session_ref"] as string | null | undefined) ?? null),
      },
    ];
  });
}

/** A run as one of its steps has it. */
function asStepHasIt(run: RunRow, spec: StepSpec | null): Assignment["run"] {
  const target = spec?.target ?? run.target;
  ensure(target.kind !== "workflow", "a step of a workflow was decided on before it started");
  return { ...run, target, policy: spec?.policy ?? run.policy };
}

type Surroundings = Pick<Assignment, "account" | "worktree" | "before">;

/** What agents and runs in worktrees need besides; asks nothing where there are none. */
function* surroundingsOf(
  attempts: readonly Row[],
  runs: readonly Assignment["run"][],
): Steps<(attempt: Row, sessionId: string | null) => Surroundings> {
  const agents = attempts.filter((row) => row["account_id"] !== null);
  const trees = runs.filter((run) => worktreeOf(run.target) !== "off");
  if (agents.length === 0 && trees.length === 0) return () => ({});
  const [accounts, worktrees, earlier] = yield* many<[Row, Row, Row]>(
    sql`select * from accounts where id in (${jsonList(agents.map((row) => row["account_id"] as string))})`,
    sql`select * from worktrees where run_id in (${jsonList(trees.map((run) => run.id))})`,
    sql`select a.step_id as step_id, a.class as class, a.message as message, a.agent_end as agent_end,
            (select e.folder from attempts e where e.step_id = s.id and e.folder is not null and e.finished_at is not null
              order by e.number desc limit 1) as folder
          from steps s join attempts a on a.step_id = s.id and a.number = s.attempts_made - 1
          where s.id in (${jsonList(agents.map((row) => row["step_id"] as string))})`,
  );
  const accountOf = new Map(accounts.map((row) => [row["id"], toAccount(row)]));
  const treeOf = new Map(worktrees.map((row) => [row["run_id"], toWorktree(row)]));
  const lastOf = new Map(earlier.map((row) => [row["step_id"], row]));
  return (attempt, sessionId) => {
    const last = lastOf.get(attempt["step_id"] as string);
    return {
      account: accountOf.get(attempt["account_id"] as string) ?? null,
      worktree: treeOf.get(attempt["run_id"] as string) ?? null,
      before:
        last === undefined
          ? null
          : {
              sessionId,
              class: last["class"] as FailureClass | null,
              message: last["message"] as string | null,
              folder: last["folder"] as string | null,
              sessionRefused: refusedIn(last["agent_end"] as string | null),
            },
    };
  };
}

const refusedIn = (agentEnd: string | null): SessionUse | null =>
  agentEnd === null ? null : ((JSON.parse(agentEnd) as AgentOutcome).sessionRefused ?? null);

export const ofHost = read("attempts.ofHost", function* (input: { hostId: string }): Steps<Assignment[]> {
  const rows = yield* all<Row>(
    sql`select * from attempts where host_id = ${input.hostId} and finished_at is null order by id`,
  );
  return yield* assignmentsOf(rows);
});

interface Held {
  readonly now: number;
  readonly run: Pick<RunRow, "id" | "eventNumber" | "cancelRequestedAt">;
  readonly attempt: AttemptRow;
  readonly step: StepRow;
}

/** Reads an attempt under the locks of its run, itself and its step. */
function* held(attemptId: string): Steps<Held | null> {
  const place = yield* one<Row>(sql`select run_id, step_id from attempts where id = ${attemptId}`);
  if (place === undefined) return null;
  const [clock, runs, attempts, steps] = yield* many<[{ now: number }, Row, Row, Row]>(
    readInstant,
    sql`select id, event_number, cancel_requested_at from runs where id = ${place["run_id"] as string} ${forUpdate}`,
    sql`select * from attempts where id = ${attemptId} ${forUpdate}`,
    sql`select * from steps where id = ${place["step_id"] as string} ${forUpdate}`,
  );
  const [now, run, attempt, step] = [clock[0]?.now, runs[0], attempts[0], steps[0]];
  // It went with its run between the two reads.
  if (run === undefined) return null;
  ensure(
    now !== undefined && attempt !== undefined && step !== undefined,
    "an attempt and its step are with their run",
  );
  return { now, run: toHeldRun(run), attempt: toAttempt(attempt), step: toStep(step) };
}

/** Why a write under this token is refused; null when it may go on. */
function guard(of: Pick<Held, "attempt" | "step">, token: number, event: AttemptEvent): Guarded | null {
  if (of.step.token !== token || of.attempt.token !== token) return "superseded";
  return next(attemptTable, of.attempt.status, event) === null ? "already_ended" : null;
}

/** A refused write leaves a trace: who came too late with what. */
function* refuse(of: Held, refused: Guarded, what: string, token: number): Steps<Guarded> {
  if (refused === "superseded") {
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.superseded_write", { attempt: of.attempt.id, what, heldToken: of.step.token }, token);
    yield* finish(...log.writes());
  }
  return refused;
}

interface StartAttempt {
  readonly attemptId: string;
  readonly token: number;
  readonly bootId: string;
  readonly folder: string;
  readonly awakeAt: number;
  readonly sessionId?: string | null;
}

const providerOf = (accountId: string | null): string => accountId?.split(":")[0] ?? "";

/**
 * Binds a session to the attempt and its step: one live attempt for each (provider, account, session). null: another one
 * that has not ended has it.
 */
function* bindSession(of: Held, sessionId: string, copyOf: string | null = null): Steps<Sql[] | null> {
  const { accountId } = of.attempt;
  if (accountId === null) return [];
  const provider = providerOf(accountId);
  const key = sql`provider = ${provider} and account_id = ${accountId} and session_id = ${sessionId}`;
  // A session that a provider goes on with under another id counts on; one that we know of without a row began before us.
  const from = copyOf ?? of.attempt.sessionRef;
  const usage =
    from !== null
      ? sql`(select usage_total from sessions where provider = ${provider} and account_id = ${accountId} and session_id = ${from})`
      : sql`${of.step.sessionRef === sessionId ? null : JSON.stringify(noUsage)}`;
  yield* all(
    sql`insert into sessions (provider, account_id, session_id, owner_step_id, live_attempt_id, usage_total, created_at)
        values (${provider}, ${accountId}, ${sessionId}, ${of.step.id}, ${of.attempt.id}, ${usage}, ${of.now})
        on conflict (provider, account_id, session_id) do nothing`,
  );
  const session = yield* one<Row>(sql`select live_attempt_id from sessions where ${key} ${forUpdate}`);
  const holder = (session?.["live_attempt_id"] as string | null | undefined) ?? null;
  if (holder !== null && holder !== of.attempt.id) {
    const live = yield* one<Row>(sql`select id from attempts where id = ${holder} and finished_at is null`);
    if (live !== undefined) return null;
  }
  return [
    sql`update sessions set owner_step_id = ${of.step.id}, live_attempt_id = ${of.attempt.id} where ${key}`,
    sql`update attempts set session_ref = ${sessionId} where id = ${of.attempt.id} and token = ${of.attempt.token} and finished_at is null`,
    sql`update steps set session_ref = ${sessionId} where id = ${of.step.id} and token = ${of.step.token}`,
  ];
}

export const sessionOfAttempt = operation(
  "attempts.session",
  function* (input: { attemptId: string; token: number; sessionId: string; copyOf?: string | null }): Steps<Guarded> {
    const of = yield* held(input.attemptId);
    if (of === null) return "superseded";
    if (of.step.token !== input.token || of.attempt.token !== input.token)
      return yield* refuse(of, "superseded", "session", input.token);
    if (of.attempt.finishedAt !== null) return "already_ended";
    if (of.attempt.sessionRef === input.sessionId) return "done";
    const writes = yield* bindSession(of, input.sessionId, input.copyOf ?? null);
    // Another live attempt has it: the provider gave one id twice. The first keeps it.
    if (writes === null) return "superseded";
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.session", { attempt: input.attemptId, session: input.sessionId }, input.token);
    yield* finish(...writes, ...log.writes());
    return "done";
  },
  { wakes: false },
);

export const startAttempt = operation(
  "attempts.start",
  function* (input: StartAttempt): Steps<Guarded | "cancelled" | "session_busy"> {
    const of = yield* held(input.attemptId);
    if (of === null) return "superseded";
    // Asked again after an answer that was lost: the same start is the same answer.
    if (of.attempt.status === "starting" && of.attempt.folder === input.folder && of.step.token === input.token)
      return "done";
    // A daemon that was replaced starts nothing more: its successor gives back what it finds reserved, under the same token.
    const host = yield* one<Row>(sql`select incarnation from hosts where id = ${of.attempt.hostId} ${forShare}`);
    const refused =
      host?.["incarnation"] === of.attempt.incarnation ? guard(of, input.token, "start") : ("superseded" as const);
    if (refused !== null) return yield* refuse(of, refused, "start", input.token);
    if (of.run.cancelRequestedAt !== null) return "cancelled";
    const bound = input.sessionId ? yield* bindSession(of, input.sessionId) : [];
    if (bound === null) return "session_busy";
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.starting", { attempt: input.attemptId, number: of.attempt.number }, input.token);
    const [changed] = yield* finish(
      sql`update attempts set status = 'starting', boot_id = ${input.bootId}, folder = ${input.folder}, awake_at = ${input.awakeAt}
          where id = ${input.attemptId} and token = ${input.token} and status = 'reserved'`,
      ...bound,
      ...log.writes(),
    );
    ensure(changed === 1, "a reserved attempt under its lock can start");
    return "done";
  },
  { wakes: false },
);

export const runAttempt = operation(
  "attempts.run",
  function* (input: {
    attemptId: string;
    token: number;
    pid: number;
    pidStarted: string;
    startedAt: number;
  }): Steps<Guarded> {
    const of = yield* held(input.attemptId);
    if (of === null) return "superseded";
    if (of.attempt.status === "running" && of.step.token === input.token && of.attempt.token === input.token)
      return "done";
    const refused = guard(of, input.token, "run");
    if (refused !== null) return yield* refuse(of, refused, "run", input.token);
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.running", { attempt: input.attemptId, pid: input.pid }, input.token);
    const [changed] = yield* finish(
      sql`update attempts set status = 'running', pid = ${input.pid}, pid_started = ${input.pidStarted}, ticket_at = ${input.startedAt},
            started_at = ${input.startedAt}
          where id = ${input.attemptId} and token = ${input.token} and status = 'starting'`,
      ...log.writes(),
    );
    ensure(changed === 1, "a starting attempt under its lock can run");
    return "done";
  },
  { wakes: false },
);

interface AdoptAttempt {
  readonly attemptId: string;
  readonly token: number;
  readonly hostId: string;
  readonly incarnation: number;
  readonly leaseMs: number;
}

export const adoptAttempt = operation(
  "attempts.adopt",
  function* (input: AdoptAttempt): Steps<{ answer: Guarded; token: number }> {
    const of = yield* held(input.attemptId);
    if (of === null) return { answer: "superseded", token: input.token };
    if (of.attempt.incarnation === input.incarnation && of.attempt.adopted && of.step.token === input.token + 1)
      return { answer: "done", token: of.step.token };
    const refused = guard(of, input.token, "adopt") ?? (of.attempt.hostId === input.hostId ? null : "superseded");
    if (refused !== null) return { answer: yield* refuse(of, refused, "adopt", input.token), token: input.token };
    const token = input.token + 1;
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.adopted", { attempt: input.attemptId, incarnation: input.incarnation }, token);
    const [changed] = yield* finish(
      sql`update attempts set token = ${token}, incarnation = ${input.incarnation}, adopted = 1, lease_until = ${of.now + input.leaseMs}
          where id = ${input.attemptId} and token = ${input.token} and finished_at is null`,
      sql`update steps set token = ${token} where id = ${of.step.id} and token = ${input.token}`,
      ...log.writes(),
    );
    ensure(changed === 1, "a live attempt under its lock can be adopted");
    return { answer: "done", token };
  },
  { wakes: false },
);

export const endingAttempt = operation(
  "attempts.ending",
  function* (input: { attemptId: string; token: number; by: EndedBy }): Steps<Guarded> {
    const of = yield* held(input.attemptId);
    if (of === null) return "superseded";
    if (of.step.token !== input.token || of.attempt.token !== input.token)
      return yield* refuse(of, "superseded", "ending", input.token);
    if (of.attempt.finishedAt !== null) return "already_ended";
    if (of.attempt.endingSince !== null) return "done";
    const log = journal("run", of.run.id, of.run.eventNumber, of.now);
    log.add("attempt.ending", { attempt: input.attemptId, by: input.by }, input.token);
    yield* finish(
      sql`update attempts set ending_since = ${of.now}, ended_by = ${input.by}
          where id = ${input.attemptId} and token = ${input.token} and finished_at is null`,
      ...log.writes(),
    );
    return "done";
  },
  { wakes: false },
);

export interface Settled {
  readonly answer: Guarded;
  readonly step: StepStatus | null;
  readonly run: RunStatus | null;
}

const none = { untilAt: undefined, writes: [] } as const;
const jsonOf = (value: unknown): string | null =>
  value === null || value === undefined ? null : JSON.stringify(value);

/** What is known of an agent's end besides its session and usage, which have columns of their own. */
function agentEndOf({ agent }: Outcome): string | null {
  if (agent === null || agent === undefined) return null;
  const { resetAt, resetSource, httpStatus, refusedTools, sessionRefused } = agent;
  return JSON.stringify({ resetAt, resetSource, httpStatus, refusedTools, sessionRefused });
}

interface UsageEnd {
  readonly usage: Usage | null;
  readonly writes: readonly Sql[];
}
const noUsageEnd: UsageEnd = { usage: null, writes: [] };

/** What the attempt itself used, and what is kept of its session so that the next one in it can be told apart. */
function* usageOf(attempt: AttemptRecord, step: StepRow, outcome: Outcome, now: number): Steps<UsageEnd> {
  const { accountId } = attempt;
  const stated = outcome.agent?.usage ?? null;
  const sessionId = outcome.agent?.sessionId ?? attempt.sessionRef;
  if (accountId === null || outcome.kind === "never_started") return noUsageEnd;
  // Nothing ties it to others; what counts a session then counts one that nobody knows.
  if (sessionId === null)
    return { usage: stated === null ? null : ownUsage(stated, { total: noUsage, unstated: false }), writes: [] };
  const provider = providerOf(accountId);
  const known = (id: string) =>
    one<Row>(
      sql`select usage_total, unstated from sessions
          where provider = ${provider} and account_id = ${accountId} and session_id = ${id} ${forUpdate}`,
    );
  const copyOf = outcome.agent?.copyOf ?? null;
  const row = (yield* known(sessionId)) ?? (copyOf === null ? undefined : yield* known(copyOf));
  // It ended before its session was seen: the session began with it, unless the step had it before.
  const begun = step.sessionRef === sessionId ? null : noUsage;
  const kept = row?.["usage_total"] as string | null | undefined;
  const before: SessionUsage = {
    total: kept === undefined ? begun : kept === null ? null : (JSON.parse(kept) as Usage),
    unstated: Number(row?.["unstated"] ?? 0) !== 0,
  };
  // That it could not be begun says that somebody had begun it: what was used in it nobody knows.
  const total = outcome.agent?.sessionRefused === "begin" ? null : (stated ?? before.total);
  return {
    usage: stated === null ? null : ownUsage(stated, before),
    writes: [
      sql`insert into sessions (provider, account_id, session_id, owner_step_id, usage_total, unstated, created_at)
          values (${provider}, ${accountId}, ${sessionId}, ${step.id}, ${jsonOf(total)}, ${stated === null ? 1 : 0}, ${now})
          on conflict (provider, account_id, session_id) do update set usage_total = excluded.usage_total, unstated = excluded.unstated`,
    ],
  };
}

/** Where an attempt belongs: its run, its step, and the loop of the run. */
const placeOf = (attemptId: string): Sql =>
  sql`select a.run_id as run_id, a.step_id as step_id, r.loop_id as loop_id from attempts a join runs r on r.id = a.run_id where a.id = ${attemptId}`;

/** An attempt and its step, read under the locks of their run. */
const rowsOf = (attemptId: string, stepId: string): [Sql, Sql] => [
  sql`select * from attempts where id = ${attemptId}`,
  sql`select * from steps where id = ${stepId}`,
];

function heldRows(also: DeskRead["also"]): [AttemptRecord, StepRow] {
  const [attempt, step] = [also[0]?.[0], also[1]?.[0]];
  ensure(attempt && step, "an attempt that was there is there under the lock of its run, and its step");
  return [toAttempt(attempt), toStep(step)];
}

/** What others may read of the end of a step of a workflow. */
function resultOf(step: StepRow, outcome: Outcome, { attempt }: AttemptEnd): string | null {
  if (step.condition === null) return null;
  const result: StepResult = {
    exitCode: outcome.exitStatus,
    stdoutTail: outcome.tails?.stdout ?? "",
    stderrTail: outcome.tails?.stderr ?? "",
    class: attempt.class,
    message: outcome.message,
  };
  return JSON.stringify(result);
}

/** Ends one attempt on a desk, and what follows from it: its step, its run, and what `endRun` moves. */
function* endOn(
  desk: Desk,
  attempt: AttemptRecord,
  steps: readonly StepState[],
  step: StepRow,
  token: number,
  outcome: Outcome,
  limits: Limits,
  { usage, writes: usageWrites }: UsageEnd,
  awaySince?: number,
  under: { readonly untilAt: number | null | undefined; readonly writes: readonly Sql[] } = none,
): Steps<Settled> {
  const { now, run, log, writes } = desk;
  // The next attempt goes on with it, unless its provider does not know it any more.
  const sessionId = outcome.agent?.sessionId ?? attempt.sessionRef;
  const sessionRef = outcome.agent?.sessionGone === true ? null : (sessionId ?? step.sessionRef);
  const end = endAttempt(
    {
      stepId: step.id,
      triesCounted: step.triesCounted,
      maxAttempts: step.maxAttempts,
      idleEnds: step.idleEnds,
      lostEnds: step.lostEnds,
      attemptNumber: attempt.number,
      cancelRequested:
        run.cancelRequestedAt === null
          ? null
          : { reason: run.cancelReason ?? "cancelled", superseded: run.cancelSuperseded },
      awaySince,
      heldUntil: under.untilAt,
      hasSession: sessionRef !== null,
    },
    outcome,
    step.spec?.policy ?? run.policy,
    limits,
    now,
  );
  const attemptStatus = next(attemptTable, attempt.status, end.attempt.event);
  const stepStatus = next(stepTable, step.status, end.step.event);
  ensure(attemptStatus !== null, `an attempt that is ${attempt.status} cannot ${end.attempt.event}`);
  ensure(stepStatus !== null, `a step that is ${step.status} cannot ${end.step.event}`);
  log.add(
    `attempt.${attemptStatus}`,
    {
      attempt: attempt.id,
      number: attempt.number,
      counted: end.attempt.counted,
      ...(end.attempt.class === null ? {} : { class: end.attempt.class }),
      ...(outcome.exitStatus === null ? {} : { exitStatus: outcome.exitStatus }),
    },
    token,
  );
  writes.push(
    sql`update attempts set status = ${attemptStatus}, class = ${end.attempt.class}, counted = ${end.attempt.counted ? 1 : 0},
          exit_status = ${outcome.exitStatus}, signal = ${outcome.signal}, message = ${outcome.message}, tail = ${outcome.tail},
          stdout_bytes = ${outcome.stdoutBytes}, stderr_bytes = ${outcome.stderrBytes}, ended_by = ${outcome.endedBy}, reaped = ${outcome.reaped},
          proof = ${outcome.proof}, usage_total = ${jsonOf(usage)}, agent_end = ${agentEndOf(outcome)}, session_ref = ${sessionId},
          started_at = coalesce(started_at, ${outcome.startedAt}), token = ${token}, finished_at = ${endOf(outcome.endedAt, attempt.startedAt ?? outcome.startedAt, now)}
        where id = ${attempt.id} and token <= ${token} and finished_at is null`,
    sql`delete from claims where attempt_id = ${attempt.id}`,
    ...(attempt.sessionRef === null
      ? []
      : [
          sql`update sessions set live_attempt_id = null
                where provider = ${providerOf(attempt.accountId)} and account_id = ${attempt.accountId} and session_id = ${attempt.sessionRef} and live_attempt_id = ${attempt.id}`,
        ]),
    ...usageWrites,
    ...under.writes,
  );
  const settles = end.step.event !== "return" && end.step.event !== "wait";
  const wakeAt = end.step.event === "wait" ? end.step.wakeAt : null;
  const reason = end.step.event === "return" ? null : end.step.reason;
  const output = end.step.event === "succeed" ? outcome.output : null;
  writes.push(
    sql`update steps set status = ${stepStatus}, reason = ${reason}, wake_at = ${wakeAt}, tries_counted = ${end.step.triesCounted},
          idle_ends = ${end.step.idleEnds}, lost_ends = ${end.step.lostEnds ?? 0}, session_ref = ${sessionRef}, output = ${output}, result = ${resultOf(step, outcome, end)}, finished_at = ${settles ? endOf(outcome.endedAt, attempt.startedAt ?? outcome.startedAt, now) : null}
        where id = ${step.id} and token = ${token} and finished_at is null`,
  );
  const among = steps.map((one) => (one.id === step.id ? { ...one, status: stepStatus, reason, wakeAt } : one));
  const after = settles ? yield* followUp(desk, among, [step.id]) : { steps: among, ends: [] };
  const isCrashLoop = reason === "crash_loop";
  const runStatus = yield* standOf(
    desk,
    after.steps,
    [
      ...after.ends,
      {
        id: step.id,
        reason: end.step.event === "succeed" ? null : reason,
        class: end.step.event === "succeed" ? null : isCrashLoop ? "crash_loop" : end.attempt.class,
        message: isCrashLoop
          ? rowOf(end.step, outcome)
          : outcome.programAway === true && awaySince !== undefined
            ? `it could not be started for ${describeDuration(now - awaySince)}: ${outcome.message ?? "its program is not there"}`
            : outcome.message,
        exitStatus: outcome.exitStatus,
      },
    ],
    { output: steps.length === 1 && step.condition === null ? output : null, endedAt: outcome.endedAt },
  );
  return { answer: "done", step: stepStatus, run: runStatus };
}

/** Why a step that is started again and again is not started any more. */
const rowOf = ({ lostEnds = 0, idleEnds }: AttemptEnd["step"], { message }: Outcome): string =>
  `ended like this ${lostEnds > 0 ? lostEnds : idleEnds} times in a row: ${message ?? "nobody knows why"}`;

/** When the row of starts that found no program began, this one included: nothing else ended between them. */
function* awaySinceOf({ id, runId, stepId, number }: AttemptRecord): Steps<number> {
  const ofStep = sql`run_id = ${runId} and step_id = ${stepId}`;
  const row = yield* one<{ since: number }>(
    sql`select min(created_at) as since from attempts
          where ${ofStep} and number <= ${number}
            and number > coalesce((select max(number) from attempts where ${ofStep} and id <> ${id} and (class is null or class <> 'spawn')), 0)`,
  );
  ensure(row, "an attempt is in its own row");
  return Number(row.since);
}

/** What changed in the checkout that a run's worktree was made from, with what its earlier attempts saw. */
function* escape({ run, log, writes }: Desk, attempt: AttemptRecord, seen: Escape, token: number): Steps<void> {
  const row = yield* one<Row>(sql`select path, escaped from worktrees where run_id = ${run.id} ${forUpdate}`);
  if (row === undefined) return;
  const before = (row["escaped"] ?? null) as string | null;
  const escaped = joinEscapes(before === null ? null : (JSON.parse(before) as Escape), seen);
  log.add("worktree.escaped", { path: row["path"], attempt: attempt.id, ...seen }, token);
  writes.push(sql`update worktrees set escaped = ${JSON.stringify(escaped)} where run_id = ${run.id}`);
}

const receipt = (stepId: string, token: number, digest: string, answer: Settled, now: number): Sql =>
  sql`insert into receipts (step_id, token, operation, digest, answer, created_at)
      values (${stepId}, ${token}, 'settle', ${digest}, ${JSON.stringify(answer)}, ${now})`;

export const settleAttempt = operation(
  "attempts.settle",
  function* (input: { attemptId: string; token: number; outcome: Outcome; limits: Limits }): Steps<Settled> {
    const { attemptId, token, outcome, limits } = input;
    const gone: Settled = { answer: "superseded", step: null, run: null };
    const place = yield* one<Row>(placeOf(attemptId));
    if (place === undefined) return gone;
    const stepId = place["step_id"] as string;
    const at = yield* deskAt(place["run_id"] as string, place["loop_id"] as string | null, limits, [
      ...rowsOf(attemptId, stepId),
      sql`select digest, answer from receipts where step_id = ${stepId} and token = ${token} and operation = 'settle'`,
    ]);
    if (at === null) return gone;
    const [attempt, step] = heldRows(at.also);
    const digest = digestOf(outcome);
    const given = at.also[2]?.[0];
    if (given !== undefined && given["digest"] === digest) return JSON.parse(given["answer"] as string) as Settled;
    const late = given !== undefined || attempt.finishedAt !== null;
    if (late || step.token !== token || attempt.token !== token) {
      // Terminal is final: what comes after it is evidence, kept as an event.
      at.desk.log.add(
        late ? "attempt.late_evidence" : "attempt.superseded_write",
        { attempt: attemptId, what: "settle", kind: outcome.kind, class: outcome.class },
        token,
      );
      yield* finish(...at.desk.log.writes());
      return { answer: late ? "already_ended" : "superseded", step: step.status, run: at.desk.run.status };
    }
    const under =
      attempt.accountId === null
        ? none
        : yield* endUnder(attempt.accountId, outcome, `${step.id}:${attempt.number}`, limits, at.desk.now);
    if (outcome.escaped !== undefined) yield* escape(at.desk, attempt, outcome.escaped, token);
    const usage = yield* usageOf(attempt, step, outcome, at.desk.now);
    const away = outcome.programAway === true ? yield* awaySinceOf(attempt) : undefined;
    const answer = yield* endOn(at.desk, attempt, at.steps, step, token, outcome, limits, usage, away, under);
    const [changed] = yield* finish(...at.desk.writes, receipt(step.id, token, digest, answer, at.desk.now));
    ensure(changed === 1, "a live attempt under its lock can end");
    return answer;
  },
);

export const attemptsToEnd = read("attempts.toEnd", function* (input: { hostId: string }): Steps<
  { attemptId: string; runId: string; reason: string; superseded: boolean }[]
> {
  const rows = yield* all<Row>(
    sql`select a.id as id, a.run_id as run_id, r.cancel_reason as reason, r.cancel_superseded as superseded
          from attempts a join runs r on r.id = a.run_id
          where a.host_id = ${input.hostId} and a.finished_at is null and r.cancel_requested_at is not null order by a.id`,
  );
  return rows.map((row) => ({
    attemptId: row["id"] as string,
    runId: row["run_id"] as string,
    reason: (row["reason"] as string | null) ?? "cancelled",
    superseded: row["superseded"] !== 0,
  }));
});

const silence: Outcome = {
  ...traceless,
  kind: "lost",
  class: "lost",
  endedBy: "fence",
  message: "its host has been silent for the takeover time",
};

/** One attempt of a silent host, if there is one: its token is raised, so whatever its old host still writes is refused. */
function* takeOne(input: { hostId: string; limits: Limits }): Steps<boolean> {
  const found = yield* one<Row>(
    sql`select a.id as id, a.run_id as run_id, a.step_id as step_id, r.loop_id as loop_id
        from attempts a join hosts h on h.id = a.host_id join runs r on r.id = a.run_id
        where a.finished_at is null and a.host_id <> ${input.hostId} and a.lease_until < ${storeNow}
          and h.lease_until + ${input.limits.takeoverMs - input.limits.leaseMs} < ${storeNow} and coalesce(h.back_by, 0) < ${storeNow}
        order by a.id limit 1`,
  );
  if (found === undefined) return false;
  const at = yield* deskAt(
    found["run_id"] as string,
    found["loop_id"] as string | null,
    input.limits,
    rowsOf(found["id"] as string, found["step_id"] as string),
  );
  if (at === null) return false;
  const [attempt, step] = heldRows(at.also);
  if (attempt.finishedAt !== null) return false;
  const token = step.token + 1;
  const started = attempt.status !== "reserved";
  const outcome: Outcome = started ? silence : { ...silence, kind: "never_started" };
  const usage = yield* usageOf(attempt, step, outcome, at.desk.now);
  yield* all(sql`update steps set token = ${token} where id = ${step.id} and token = ${step.token}`);
  yield* endOn(at.desk, attempt, at.steps, step, token, outcome, input.limits, usage);
  yield* finish(...at.desk.writes);
  return true;
}

export const takeOver = operation("attempts.takeOver", function* (input: { hostId: string; limits: Limits }): Steps<{
  taken: number;
}> {
  return { taken: (yield* takeOne(input)) ? 1 : 0 };
});

export const endedAmong = read("attempts.endedAmong", function* (input: { attemptIds: readonly string[] }): Steps<
  { attemptId: string; finishedAt: number; lost: boolean }[]
> {
  const rows = yield* all<Row>(
    sql`select id, finished_at, status from attempts where id in (${jsonList(input.attemptIds)}) and finished_at is not null`,
  );
  return rows.map((row) => ({
    attemptId: row["id"] as string,
    finishedAt: row["finished_at"] as number,
    lost: row["status"] === "lost",
  }));
});

export const attemptsAmong = read("attempts.among", function* (input: { attemptIds: readonly string[] }): Steps<
  { attemptId: string; finishedAt: number | null }[]
> {
  const rows = yield* all<Row>(sql`select id, finished_at from attempts where id in (${jsonList(input.attemptIds)})`);
  return rows.map((row) => ({ attemptId: row["id"] as string, finishedAt: row["finished_at"] as number | null }));
});
