/**
 * The invariants of the design, looked at after every change, at a cost that does not grow with history.
 *
 * | invariant | looked at by |
 * | --- | --- |
 * | I1 one live attempt and one tree per step | `checkRun`, `checkLeases`, `onStart` |
 * | I2 nothing accepted from a superseded token | `checkAccepted`, `checkRun` |
 * | I3 no cap exceeded at a grant | `checkCaps`; no claim outlives its attempt: `after`; one agent in a folder: `onStart` |
 * | I4 each instant once, in one word | `checkSlots`, `checkRun` |
 * | I5 one work item for each key | waits for work items |
 * | I6 terminal is final | `checkRun`, `checkAccepted` |
 * | I7 what is not terminal has a way out | `checkRun`, `checkLoops` |
 * | I8 no change without its event, no gap | `after`, `checkRun`, `checkMirror` |
 * | I9 decisions do not depend on the order of rows | a test of its own, which shuffles them: `sim.test.ts` |
 * | I10 nobody waits who could go on | `onRest`: only at rest, since a pass may be on its way at any other moment |
 * | I11 without faults everything drains | `onDrained`: at the end, which is what it is about |
 * | I12 an edit starts no past work | `after` |
 *
 * Beside them: no attempt starts twice, before its row or after its end; tries are counted right; the same settlement
 * gets the same answer.
 */
import type { Limits } from "../../src/core/limits.ts";
import type { Schedule } from "../../src/core/schedule.ts";
import { all, instant, one, type Steps } from "../../src/store/operation.ts";
import { jsonList, sql } from "../../src/store/sql.ts";
import type { Call, Called } from "./store.ts";
import { walk } from "./walk.ts";

/** A promise that was broken: which, and what was seen. */
export interface Broken {
  readonly invariant: string;
  readonly what: string;
}

/** What the store holds just before a guarded write: the token of the attempt's step, or the incarnation of the host. */
interface Held {
  readonly token: number;
  readonly over: boolean;
}

export interface Checks {
  before(call: Call): Steps<Held | null> | null;
  /** After every write. Answers whether it left an event. */
  after(calls: readonly Called[], changed: boolean, events?: readonly number[]): Steps<boolean>;
  onStart(attemptId: string): Steps<void>;
  onEnd(attemptId: string): Steps<void>;
  /** Nobody waits who could go on, at a moment when the host has been at work undisturbed for `forMs`. */
  onRest(hostId: string, now: number, forMs: number): Steps<void>;
  /** It was disturbed meanwhile. */
  onUnrest(hostId: string): void;
  /** Runs that have not ended. */
  unfinished(): number;
  /** Attempts that were granted. */
  claims(): number;
  /** At the end, when everything has drained. */
  onDrained(): Steps<void>;
  /** Slots by outcome, for the report. */
  tally(): Steps<Readonly<Record<string, number>>>;
}

interface LoopMemo {
  schedule: Schedule;
  coveredUntil: number;
  lastAt: number;
  lastCount: number;
  revision: number;
}

const FINAL = new Set(["succeeded", "failed", "timed_out", "cancelled", "skipped"]);
/** Ends that are no fault of the work. */
const WEATHER = new Set(["rate_limited", "quota", "auth", "overloaded", "spawn", "storage"]);
const LIVE_ATTEMPT = new Set(["reserved", "starting", "running"]);
/** Operations that compare a token. */
const GUARDED = new Set([
  "attempts.start",
  "attempts.run",
  "attempts.session",
  "attempts.ending",
  "attempts.settle",
  "attempts.adopt",
]);
/** Operations that compare an incarnation. */
const LEASES = new Set(["hosts.join", "hosts.renew", "attempts.takeOver"]);
const OF_DAEMON = new Set(["hosts.renew", "hosts.report", "hosts.leave", "admission.pass"]);

interface EventRow {
  readonly id: number;
  readonly subject_kind: string;
  readonly subject_id: string;
  readonly number: number;
  readonly type: string;
}

interface LoopRow {
  readonly id: string;
  readonly schedule: string;
  readonly planned_until: number;
  readonly status: string;
  readonly next_at: number | null;
  readonly wake_at: number | null;
  readonly archived_at: number | null;
  readonly revision: number;
}

interface SlotRow {
  readonly at: number;
  readonly until_at: number;
  readonly count: number;
  readonly outcome: string | null;
  readonly reason: string | null;
  readonly run_id: string | null;
}

export function createChecks(fail: (broken: Broken) => void): Checks {
  let lastEvent = 0;
  const numbers = new Map<string, number>();
  /** Status of every run that has ended, and of every attempt that has. */
  const finals = new Map<string, string>();
  const live = new Map<string, string>();
  const tokens = new Map<string, number>();
  const loops = new Map<string, LoopMemo>();
  let granted = 0;
  /** When each host was last heard of, by the store's clock. */
  const heardAt = new Map<string, number>();
  /** Answers to settlements that were accepted, by attempt, token and outcome. */
  const receipts = new Map<string, string>();
  const starts = new Map<string, number>();
  /** Attempts that have a live tree, by step. */
  const trees = new Map<string, string>();
  /** Steps that were ready and had room at the last look, since when, by host. */
  const waiters = new Map<string, ReadonlyMap<string, number>>();

  const ensure = (holds: boolean, invariant: string, what: () => string): void => {
    if (!holds) fail({ invariant, what: what() });
  };

  // --- runs, steps, attempts -----------------------------------------------------------------------------------------

  function* checkRun(runId: string, type: string): Steps<void> {
    const run = yield* one<{
      status: string;
      event_number: number;
      finished_at: number | null;
      loop_id: string | null;
      slot_at: number | null;
      origin_kind: string;
      wake_at: number | null;
      waits_turn: number;
    }>(
      sql`select status, event_number, finished_at, loop_id, slot_at, origin_kind, wake_at, waits_turn from runs where id = ${runId}`,
    );
    if (run === undefined) return fail({ invariant: "I8", what: `an event of the run ${runId}, which does not exist` });
    ensure(
      run.event_number === numbers.get(`run:${runId}`),
      "I8",
      () => `${runId} numbers its events up to ${run.event_number}`,
    );
    ensure(
      FINAL.has(run.status) === (run.finished_at !== null),
      "I6",
      () => `${runId} is ${run.status} with finished_at ${run.finished_at}`,
    );
    const before = finals.get(runId);
    ensure(
      before === undefined || before === run.status,
      "I6",
      () => `${runId} was ${before} and became ${run.status} (${type})`,
    );

    const steps = yield* all<{
      id: string;
      status: string;
      token: number;
      reason: string | null;
      wake_at: number | null;
      tries_counted: number;
      max_attempts: number;
      needs_left: number;
      finished_at: number | null;
    }>(
      sql`select id, status, token, reason, wake_at, tries_counted, max_attempts, needs_left, finished_at from steps where run_id = ${runId}`,
    );
    if (steps.length > 1) {
      const open = steps.filter((step) => !FINAL.has(step.status));
      ensure(
        (open.length === 0) === FINAL.has(run.status),
        "I7",
        () => `${runId} is ${run.status}, and ${open.length} of its steps have not ended (${type})`,
      );
      const left = new Map(
        (yield* all<{ step_id: string; n: number }>(
          sql`select n.step_id as step_id, count(*) as n from steps s join step_needs n on n.step_id = s.id join steps d on d.id = n.needs_step_id
              where s.run_id = ${runId} and d.finished_at is null group by n.step_id`,
        )).map(({ step_id, n }) => [step_id, Number(n)]),
      );
      for (const step of open) {
        ensure(
          step.needs_left === (left.get(step.id) ?? 0),
          "I7",
          () => `${step.id} waits for ${step.needs_left}, ${left.get(step.id) ?? 0} have not ended (${type})`,
        );
        ensure(
          step.status !== "pending" || step.needs_left > 0 || step.reason !== null,
          "I7",
          () => `${step.id} waits for nothing`,
        );
      }
    }
    for (const step of steps) {
      const ended = finals.get(step.id);
      ensure(
        ended === undefined || ended === step.status,
        "I6",
        () => `${step.id} was ${ended} and became ${step.status} (${type})`,
      );
      ensure(
        FINAL.has(step.status) === (step.finished_at !== null),
        "I6",
        () => `${step.id} is ${step.status} with finished_at ${step.finished_at}`,
      );
      if (FINAL.has(step.status)) finals.set(step.id, step.status);
      ensure(
        step.token >= (tokens.get(step.id) ?? 0),
        "I2",
        () => `the token of ${step.id} went back to ${step.token}`,
      );
      tokens.set(step.id, step.token);
      ensure(
        step.tries_counted <= step.max_attempts,
        "attempts",
        () => `${step.id} counted ${step.tries_counted} of ${step.max_attempts} tries`,
      );
      const attempts = yield* all<{
        id: string;
        status: string;
        token: number;
        counted: number | null;
        number: number;
        class: string | null;
      }>(sql`select id, status, token, counted, number, class from attempts where step_id = ${step.id}`);
      let alive = 0;
      let counted = 0;
      for (const attempt of attempts) {
        counted += attempt.counted ?? 0;
        ensure(
          !WEATHER.has(attempt.class ?? "") || attempt.counted !== 1,
          "attempts",
          () => `${attempt.id} was counted although it ended with ${attempt.class}`,
        );
        if (LIVE_ATTEMPT.has(attempt.status)) {
          alive++;
          ensure(
            attempt.token === step.token,
            "I1",
            () => `${attempt.id} lives with token ${attempt.token}, its step has ${step.token}`,
          );
        } else {
          const was = finals.get(attempt.id);
          ensure(
            was === undefined || was === attempt.status,
            "I6",
            () => `${attempt.id} was ${was} and became ${attempt.status}`,
          );
          finals.set(attempt.id, attempt.status);
        }
      }
      ensure(alive <= 1, "I1", () => `${step.id} has ${alive} live attempts`);
      ensure(
        counted === step.tries_counted,
        "attempts",
        () => `${step.id} counts ${step.tries_counted} tries, its attempts ${counted}`,
      );
      ensure(
        (step.status === "running") === (alive === 1),
        "I7",
        () => `${step.id} is ${step.status} with ${alive} live attempts`,
      );
      // A login that does not work waits for a person.
      const waits = step.status === "waiting" && step.reason !== "account";
      ensure(!waits || step.wake_at !== null, "I7", () => `${step.id} waits for nothing`);
    }
    const only = steps[0];
    if (steps.length === 1 && only !== undefined) {
      const want: Record<string, string> = { ready: "queued", pending: "queued" };
      const status = want[only.status] ?? only.status;
      ensure(status === run.status, "I7", () => `${runId} is ${run.status}, its one step is ${only.status} (${type})`);
    }
    if (FINAL.has(run.status)) {
      finals.set(runId, run.status);
      live.delete(runId);
      if (run.origin_kind === "slot" && run.loop_id !== null && run.slot_at !== null) {
        const slot = yield* one<SlotRow>(
          sql`select at, outcome, run_id from slots where loop_id = ${run.loop_id} and at = ${run.slot_at}`,
        );
        ensure(
          slot === undefined || slot.run_id !== runId || slot.outcome === run.status,
          "I4",
          () => `${runId} is ${run.status}, its slot ${slot?.outcome}`,
        );
      }
    } else live.set(runId, run.status);
  }

  /** What changed has its event: live runs are what their events said. */
  function* checkMirror(operation: string): Steps<void> {
    const there = yield* all<{ id: string; status: string }>(
      sql`select id, status from runs where finished_at is null`,
    );
    for (const { id, status } of there)
      ensure(live.get(id) === status, "I8", () => `${id} is ${status} without an event that says so (${operation})`);
    ensure(
      there.length === live.size,
      "I8",
      () => `${there.length} runs live, ${live.size} by their events (${operation})`,
    );
  }

  // --- loops and slots -----------------------------------------------------------------------------------------------

  function* checkLoops(operation: string): Steps<void> {
    for (const loop of yield* all<LoopRow>(
      sql`select id, schedule, planned_until, status, next_at, wake_at, archived_at, revision from loops`,
    )) {
      const schedule = JSON.parse(loop.schedule) as Schedule;
      const memo = loops.get(loop.id);
      if (memo === undefined) {
        loops.set(loop.id, {
          schedule,
          coveredUntil: loop.planned_until,
          lastAt: -1,
          lastCount: 0,
          revision: loop.revision,
        });
        continue;
      }
      ensure(
        loop.planned_until >= memo.coveredUntil,
        "I4",
        () => `planned_until of ${loop.id} went back (${operation})`,
      );
      yield* checkSlots(loop, memo, operation);
      if (
        loop.status === "active" &&
        loop.archived_at === null &&
        schedule.kind !== "dynamic" &&
        schedule.kind !== "once"
      )
        ensure(loop.wake_at !== null, "I7", () => `${loop.id} is active and nobody looks at it again (${operation})`);
      memo.schedule = schedule;
      memo.coveredUntil = loop.planned_until;
      memo.revision = loop.revision;
    }
  }

  /** The rows that are new say one word for each instant that the walk finds, and for no other. */
  function* checkSlots(loop: LoopRow, memo: LoopMemo, operation: string): Steps<void> {
    const found = yield* all<SlotRow>(
      sql`select at, until_at, count, outcome, reason, run_id from slots where loop_id = ${loop.id} and at >= ${memo.lastAt} order by at`,
    );
    let written = -memo.lastCount;
    let upTo = memo.lastAt;
    for (const slot of found) {
      written += slot.count;
      ensure(slot.at > upTo || slot.at === memo.lastAt, "I4", () => `slots of ${loop.id} overlap at ${slot.at}`);
      ensure(
        slot.until_at <= loop.planned_until,
        "I4",
        () => `${loop.id} has a slot at ${slot.until_at}, planned until ${loop.planned_until} (${operation})`,
      );
      ensure(
        slot.outcome !== null || slot.run_id !== null,
        "I4",
        () => `the slot ${slot.at} of ${loop.id} has neither outcome nor run`,
      );
      upTo = slot.until_at;
    }
    if (memo.schedule.kind !== "dynamic" && loop.planned_until > memo.coveredUntil) {
      let due = 0;
      for (const _ of walk(memo.schedule, memo.coveredUntil, loop.planned_until)) due++;
      ensure(
        written === due,
        "I4",
        () =>
          `${loop.id}: ${due} instants were due in (${memo.coveredUntil}, ${loop.planned_until}], ${written} recorded (${operation}, ${loop.schedule})`,
      );
    } else if (memo.schedule.kind !== "dynamic")
      ensure(
        written === 0,
        "I4",
        () => `${loop.id}: ${written} instants recorded beyond what is planned (${operation})`,
      );
    const last = found.at(-1);
    if (last !== undefined) {
      memo.lastAt = last.at;
      memo.lastCount = last.count;
    }
  }

  function* checkCaps(): Steps<void> {
    for (const cap of yield* all<{ key: string; used: number; limit_value: number }>(
      sql`select c.resource_key as key, count(*) as used, r.limit_value as limit_value from claims c join resources r on r.key = c.resource_key group by c.resource_key`,
    ))
      ensure(cap.used <= cap.limit_value, "I3", () => `${cap.key} has ${cap.used} of ${cap.limit_value} after a grant`);
  }

  const placeOf = (attemptId: string) =>
    one<{ step_id: string; status: string; ended_by: string | null; run_id: string; finished_at: number | null }>(
      sql`select step_id, status, ended_by, run_id, finished_at from attempts where id = ${attemptId}`,
    );

  function* heldBy(attemptId: string): Steps<Held | null> {
    const row = yield* one<{ token: number; finished_at: number | null }>(
      sql`select s.token as token, a.finished_at as finished_at from attempts a join steps s on s.id = a.step_id where a.id = ${attemptId}`,
    );
    return row === undefined ? null : { token: row.token, over: row.finished_at !== null };
  }

  function* incarnationOf(hostId: string): Steps<Held | null> {
    const row = yield* one<{ incarnation: number }>(sql`select incarnation from hosts where id = ${hostId}`);
    return row === undefined ? null : { token: row.incarnation, over: false };
  }

  /** Nobody takes what a host has that renews. Its lease is by the store's clock, like all that is compared with it. */
  function* checkLeases({ entry: { name }, input, answer, failed }: Called): Steps<void> {
    if (failed) return;
    const now = yield* instant();
    const { hostId } = input as { hostId: string };
    if (name === "hosts.join" || (answer as { superseded?: boolean }).superseded === false) heardAt.set(hostId, now);
    if (name !== "attempts.takeOver" || (answer as { taken: number }).taken === 0) return;
    const { limits } = input as { limits: Limits };
    const taken = yield* all<{ id: string; host_id: string }>(
      sql`select id, host_id from attempts where finished_at = ${now} and class = 'lost' and host_id <> ${hostId}`,
    );
    for (const { id, host_id } of taken)
      ensure(
        now - (heardAt.get(host_id) ?? 0) > limits.leaseMs,
        "I1",
        () =>
          `${id} was taken over, and ${host_id}, which has it, had renewed ${now - (heardAt.get(host_id) ?? 0)} ms before`,
      );
  }

  /** The same settlement again gives the same answer again. */
  function checkReceipt(input: unknown, answer: unknown): void {
    const { attemptId, token, outcome } = input as { attemptId: string; token: number; outcome: unknown };
    const key = JSON.stringify([attemptId, token, outcome]);
    const said = JSON.stringify(answer);
    const before = receipts.get(key);
    if ((answer as { answer: string }).answer === "done") receipts.set(key, said);
    ensure(
      before === undefined || before === said,
      "receipts",
      () => `settling ${attemptId} was answered ${before}, and when it was repeated ${said}`,
    );
  }

  /** A guarded write that was accepted must have held the token, or the incarnation. */
  function checkAccepted({ entry: { name }, input, found, answer, failed }: Called): void {
    // Nothing was looked for before it, or, on a server, its answer is not there yet.
    if (failed || found === undefined) return;
    if (name === "attempts.settle") checkReceipt(input, answer);
    const said = typeof answer === "string" ? answer : (answer as { answer?: string } | null)?.answer;
    if (OF_DAEMON.has(name)) {
      const { hostId, incarnation } = input as { hostId: string; incarnation: number };
      const current = (found as Held | null)?.token;
      const { superseded, granted: grants = 0 } = answer as { superseded?: boolean; granted?: number };
      const accepted = said === "done" || superseded === false || grants > 0;
      return ensure(
        !accepted || current === incarnation,
        "I2",
        () => `${name} of ${hostId} was accepted from its daemon ${incarnation} while ${current} is its daemon`,
      );
    }
    if (!GUARDED.has(name)) return;
    if (said !== "done") return;
    const { attemptId, token } = input as { attemptId: string; token: number };
    const held = found as Held | null;
    if (held === null)
      return fail({ invariant: "I2", what: `${name} of ${attemptId}, which does not exist, was accepted` });
    // Repeated with the same content they give the first answer again.
    if (held.over && name === "attempts.settle") return;
    if (name === "attempts.adopt" && held.token === token + 1) return;
    ensure(!held.over, "I6", () => `${name} of ${attemptId} was accepted after its end`);
    ensure(
      held.token === token,
      "I2",
      () => `${name} of ${attemptId} was accepted with token ${token} while ${held.token} is held`,
    );
  }

  return {
    before({ entry, input }) {
      if (GUARDED.has(entry.name)) return heldBy((input as { attemptId: string }).attemptId);
      return OF_DAEMON.has(entry.name) ? incarnationOf((input as { hostId: string }).hostId) : null;
    },
    *after(calls, changed, named) {
      for (const call of calls) {
        checkAccepted(call);
        if (call.found !== undefined) granted += (call.answer as { granted?: number } | null)?.granted ?? 0;
        if (LEASES.has(call.entry.name)) yield* checkLeases(call);
      }
      if (!changed) return false;
      const names = calls.map(({ entry }) => entry.name);
      const operation = names.join(", ");
      const which = named === undefined ? sql`id > ${lastEvent}` : sql`id in (${jsonList(named, "integer")})`;
      const events = yield* all<EventRow>(
        sql`select id, subject_kind, subject_id, number, type from events where ${which} order by id`,
      );
      const touched = new Map<string, string>();
      for (const event of events) {
        lastEvent = event.id;
        const subject = `${event.subject_kind}:${event.subject_id}`;
        const before = numbers.get(subject) ?? 0;
        ensure(event.number === before + 1, "I8", () => `${subject} numbers an event ${event.number} after ${before}`);
        numbers.set(subject, event.number);
        if (event.subject_kind === "run") touched.set(event.subject_id, event.type);
        if (event.type === "loop.removed") loops.delete(event.subject_id);
      }
      for (const [runId, type] of touched) yield* checkRun(runId, type);
      if (names.every((name) => name === "hosts.renew")) return false;
      yield* checkMirror(operation);
      if (names.some((name) => name.startsWith("loops."))) yield* checkLoops(operation);
      const grants = calls.reduce(
        (sum, { answer }) => sum + ((answer as { granted?: number } | null)?.granted ?? 0),
        0,
      );
      if (grants > 0) yield* checkCaps();
      if (names.includes("attempts.settle") || names.includes("attempts.takeOver")) {
        const stale = yield* one<{ n: number }>(
          sql`select count(*) as n from claims c join attempts a on a.id = c.attempt_id where a.finished_at is not null`,
        );
        ensure(stale?.n === 0, "I3", () => `${stale?.n} claims of attempts that have ended`);
      }
      if (operation === "loops.edit")
        ensure(!events.some((event) => event.type === "run.queued"), "I12", () => "an edit started something");
      return events.length > 0;
    },
    *onStart(attemptId) {
      const count = (starts.get(attemptId) ?? 0) + 1;
      starts.set(attemptId, count);
      ensure(count === 1, "started twice", () => `${attemptId} started ${count} times`);
      const place = yield* placeOf(attemptId);
      if (place === undefined) return fail({ invariant: "recorded first", what: `${attemptId} started without a row` });
      ensure(
        place.finished_at === null || place.ended_by === "fence",
        "started after its end",
        () => `${attemptId} started although it is ${place.status}`,
      );
      ensure(place.status !== "reserved", "recorded first", () => `${attemptId} started while it is reserved`);
      const other = trees.get(place.step_id);
      ensure(other === undefined, "I1", () => `${attemptId} started while ${other} of the same step runs`);
      trees.set(place.step_id, attemptId);
      const crowded = yield* one<{ key: string; n: number }>(
        sql`select resource_key as key, count(*) as n from claims where resource_key like 'folder:%' group by resource_key having count(*) > 1`,
      );
      ensure(crowded === undefined, "I3", () => `${crowded?.n} agents write in ${crowded?.key} at once`);
    },
    *onEnd(attemptId) {
      const place = yield* placeOf(attemptId);
      if (place !== undefined && trees.get(place.step_id) === attemptId) trees.delete(place.step_id);
    },
    onUnrest(hostId) {
      waiters.delete(hostId);
    },
    *onRest(hostId, now, forMs) {
      const before = now - forMs;
      const waited = waiters.get(hostId) ?? new Map<string, number>();
      const eager = new Map<string, number>();
      // No room, a folder where somebody writes, an account that is held, off, or finding out whether its limit is over.
      const full = new Set(
        (yield* all<{ key: string }>(
          sql`select r.key as key from resources r where (select count(*) from claims c where c.resource_key = r.key) >= r.limit_value
              union select resource_key from claims where resource_key like 'folder:%'
              union select 'account:' || subject_id from holds where cleared_at is null and (until_at is null or until_at > ${before})
              union select 'account:' || id from accounts where enabled = 0 or (status in ('throttled', 'quota')
                and exists (select 1 from claims where resource_key = 'account:' || id))`,
        )).map((row) => row.key),
      );
      for (const step of yield* all<{ id: string; resources: string; turn_at: number }>(
        sql`select s.id as id, c.resources as resources, s.turn_at as turn_at from steps s join cap_sets c on c.key = s.cap_key
            where s.status = 'ready' and c.host_pin = ${hostId}`,
      )) {
        if ((JSON.parse(step.resources) as string[]).some((key) => full.has(key))) continue;
        const since = waited.get(step.id) ?? now;
        eager.set(step.id, since);
        ensure(now - since <= forMs, "I10", () => `${step.id} is ready, has room, and does not start`);
      }
      waiters.set(hostId, eager);
      for (const step of yield* all<{ id: string; wake_at: number }>(
        sql`select id, wake_at from steps where status = 'waiting' and wake_at < ${before}`,
      ))
        fail({ invariant: "I10", what: `${step.id} should have been woken at ${step.wake_at}, it is ${now}` });
      for (const loop of yield* all<{ id: string; wake_at: number }>(
        sql`select id, wake_at from loops where wake_at < ${before}`,
      ))
        fail({ invariant: "I10", what: `${loop.id} was due at ${loop.wake_at}, it is ${now}` });
    },
    unfinished: () => live.size,
    claims: () => granted,
    *onDrained() {
      const counts = yield* all<{ what: string; n: number }>(
        sql`select 'runs' as what, count(*) as n from runs where finished_at is null
            union all select 'steps', count(*) from steps where finished_at is null
            union all select 'attempts', count(*) from attempts where finished_at is null
            union all select 'claims', count(*) from claims
            union all select 'slots', count(*) from slots where outcome is null`,
      );
      for (const { what, n } of counts)
        ensure(n === 0, "I11", () => `${n} ${what} are left when everything should have drained`);
      ensure(trees.size === 0, "I11", () => `processes of ${[...trees.values()].join(", ")} are left`);
    },
    *tally() {
      const counted = yield* all<{ outcome: string | null; n: number }>(
        sql`select outcome, sum(count) as n from slots group by outcome order by outcome`,
      );
      return Object.fromEntries(counted.map((row) => [row.outcome ?? "open", Number(row.n)]));
    },
  };
}
