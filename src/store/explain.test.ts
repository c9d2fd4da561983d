/**
 * No statement of the daemon, and none that people wait for, scans a table that grows: each is explained by SQLite with no
 * statistics, as on a fresh store, and by PostgreSQL for values that it does not know.
 */
import { describe, expect, test } from "vitest";
import pg from "pg";
import { makeDatabase } from "../../test/postgres.ts";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import { agentTarget } from "../core/target.ts";
import { mintId } from "./driver.ts";
import { migrate, migrationsOf, ownMigrations } from "./migrate.ts";
import { byName, type OperationTable } from "./operation.ts";
import { operations } from "./operations.ts";
import { render, sql, type Sql } from "./sql.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import { runnerAt, runSync } from "./sqlite-run.ts";

/** What stays small however long the history and the queue are, or is read whole on purpose. */
const SMALL = [
  "hosts",
  "resources",
  "cap_sets",
  "keys",
  "claims",
  "settings",
  "accounts",
  "holds",
  "json_each",
  "list",
  // A bounded part of the live runs.
  "live",
  // A walk along an index, cut off by a limit.
  "walked",
];
/** A scan of one of these partial or ordered indexes is bounded by what is live, or by the statement's limit. */
const BOUNDED = [
  "runs_live",
  "runs_hooks",
  "runs_cancelled",
  "attempts_live",
  "attempts_one_live",
  "steps_ready",
  "steps_waking",
  "loops_due",
  "loops_next",
  "claims_of_resource",
  "runs_of_account",
  "worktrees_there",
  "worktrees_untidied",
  "runs_in_turn",
  "loops_asleep",
  "slots_open",
  "loops_failing",
  "loops_tripped",
];
/** Indexes of all that ever was. Who walks one takes rows in its order up to a limit of its own, and leaves none out on the way. */
const HISTORY = [
  "runs_recent",
  "runs_of_loop",
  "runs_ended",
  "runs_ended_of_loop",
  "runs_suffix",
  "runs_done_by_hand",
  "runs_finished",
];

/** Walks over what grows, of which none may be followed by a sort. */
const GROWS =
  /^(SEARCH|SCAN) \w+ USING (COVERING )?INDEX (runs_of_loop|runs_recent|runs_ended|runs_ended_of_loop|runs_waiting|sqlite_autoindex_run_labels_1|sqlite_autoindex_slots_1|loops_listed|loops_kept|sqlite_autoindex_loop_labels_1)\b/;

const target = commandOf(["true"]);
const outcome = outcomeOf({ kind: "failed", class: "exit", exitStatus: 1, startedAt: 1 });
const hostId = "host_00000000000000000000000001";

function explained() {
  const connection = openSqlite(":memory:", {});
  runSync(migrate(migrationsOf(ownMigrations(), "sqlite"), "sqlite", "memory"), runnerAt(connection, 1));
  const texts = new Map<string, string>();
  const asked = new Map<string, Sql>();
  const table = byName(operations as unknown as OperationTable);
  let now = 1_000_000;
  function call<Answer>(name: string, input: unknown): Answer {
    const operation = table.get(name);
    if (operation === undefined) throw new Error(`no operation ${name}`);
    const run = runnerAt(connection, now);
    const steps = operation.steps(input as never, { id: (kind) => mintId(kind, now) });
    return runSync(steps, (query) => {
      const { text } = render(query, "sqlite");
      texts.set(text, name);
      asked.set(text, query);
      return run(query);
    }) as Answer;
  }
  return { call, texts, asked, connection, advance: (ms: number) => (now += ms) };
}

function planOf(connection: ReturnType<typeof openSqlite>, text: string): string[] {
  const count = text.split("?").length - 1;
  const { rows } = connection.query(
    `explain query plan ${text}`,
    Array.from({ length: count }, () => null),
    0,
  );
  return (rows as { detail: string }[]).map((row) => row.detail);
}

function scansOf(connection: ReturnType<typeof openSqlite>, text: string): string[] {
  if (!/^\s*(select|with|insert|update|delete)/i.test(text)) return [];
  // The newest event: the first step of a walk backwards along the key.
  if (text.endsWith("order by id desc limit 1")) return [];
  return planOf(connection, text)
    .filter((detail) => detail.startsWith("SCAN "))
    .filter((detail) => !SMALL.some((name) => detail.startsWith(`SCAN ${name}`)))
    .filter(
      (detail) =>
        !/^SCAN (\(|CONSTANT|c\b|h\b|r USING INDEX sqlite_autoindex_resources|SUBQUERY|below|before|begins\b|ends\b|newest\b|newer\b|live\b)/.test(
          detail,
        ),
    )
    .filter((detail) => !BOUNDED.some((index) => new RegExp(`USING (COVERING )?INDEX ${index}\\b`).test(detail)));
}

/** Walks of the history that only its end would end. */
function walksOf(connection: ReturnType<typeof openSqlite>, text: string): string[] {
  if (!/^\s*(select|with|insert|update|delete)/i.test(text)) return [];
  const plan = planOf(connection, text);
  const walks = plan.filter((detail) => HISTORY.some((index) => new RegExp(`INDEX ${index}\\b`).test(detail)));
  const limits = text.split(/\blimit \+?\?/).length - 1;
  const sorted = plan.some((detail) => detail.includes("TEMP B-TREE FOR ORDER BY")) ? 1 : 0;
  return walks.length > 0 && limits < walks.length + sorted ? walks : [];
}

/** What people look at, by the operations that it asks. */
const LOOKS =
  /^(?:runs\.(?:list|counts|get|beforeTurn|durationsLike)|loops\.(?:list|get|nextFires|preview)|slots\.(?:list|missed)|events\.list|things\.resolve|accounts\.list|worktrees\.list|admission\.usage)/;

interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly Plans?: readonly PlanNode[];
}

/**
 * Faults of a plan on PostgreSQL. Everything that could stand in for an index is switched off: what is still there had none.
 * A sort reads all that is below it, whatever limit stands above.
 */
function faultsOf(node: PlanNode, limited = false): string[] {
  const { "Node Type": type, "Relation Name": relation = "", "Index Name": index = "" } = node;
  const own: string[] = [];
  if (type === "Seq Scan" && !SMALL.includes(relation)) own.push(`Seq Scan on ${relation}`);
  if (HISTORY.includes(index) && !limited) own.push(`${index} to its end`);
  const below = type === "Limit" || (type !== "Sort" && limited);
  return [...own, ...(node.Plans ?? []).flatMap((one) => faultsOf(one, below))];
}

async function onPostgres(cluster: string, queries: readonly Sql[]): Promise<string[]> {
  const client = new pg.Client({ connectionString: await makeDatabase(cluster) });
  await client.connect();
  try {
    for (const { text } of migrationsOf(ownMigrations(), "postgres")) await client.query(text);
    for (const way of ["seqscan", "sort", "bitmapscan", "hashjoin", "mergejoin", "material"])
      await client.query(`set enable_${way} = off`);
    await client.query("set plan_cache_mode = force_generic_plan");
    const faults: string[] = [];
    for (const [index, query] of queries.entries()) {
      const { text, values } = render(query, "postgres");
      await client.query(`prepare look${index} as ${text}`);
      const nulls = values.length === 0 ? "" : `(${values.map(() => "null").join(", ")})`;
      const { rows } = await client.query(`explain (format json) execute look${index}${nulls}`);
      const [{ Plan: plan }] = (rows[0] as { "QUERY PLAN": [{ Plan: PlanNode }] })["QUERY PLAN"];
      faults.push(...faultsOf(plan).map((fault) => `${fault}: ${text.replace(/\s+/g, " ")}`));
    }
    return faults;
  } finally {
    await client.end();
  }
}

describe("statements of the daemon", () => {
  test("none scans runs, steps, attempts, events, slots or loops", async () => {
    const { call, texts, asked, connection, advance } = explained();
    const draft = runDraft(target, {
      policy: runPolicy.parse({ attempts: 2, backoffMs: 0, labels: ["a"] }),
      idempotencyKey: "k",
      hostPin: hostId,
    });
    call("hosts.join", {
      hostId,
      name: "one",
      machineId: "m",
      bootId: "b",
      version: "0",
      leaseMs: 60_000,
      commandCap: 10,
      agentCap: 1,
    });
    for (const overlap of ["skip", "queue", "cancel", "allow"]) {
      const loop = call<{ id: string }>("loops.add", {
        draft: {
          name: overlap,
          schedule: { kind: "interval", everyMs: 1_000, anchorAt: 0 },
          target,
          policy: loopPolicy.parse({ overlap, attempts: 2, backoffMs: 0, labels: ["a"] }),
          hostPin: hostId,
          managedBy: null,
        },
        limits,
      });
      for (let i = 0; i < 3; i++) {
        advance(1_000);
        call("loops.planDue", { cause: "late", limits });
      }
      call("loops.runNow", { loopId: loop.id, by: "person", parentRunId: null, limits });
      call("loops.edit", {
        loopId: loop.id,
        change: { schedule: { kind: "interval", everyMs: 2_000, anchorAt: 0 } },
        limits,
      });
      call("loops.rename", { loopId: loop.id, name: `${overlap}2` });
      call("loops.get", { loopId: loop.id });
      const gone = call<{ id: string }>("loops.add", {
        draft: {
          name: "gone",
          schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
          target,
          policy: loopPolicy.parse({}),
          hostPin: hostId,
          managedBy: null,
        },
        limits,
      });
      call("loops.remove", { loopId: gone.id });
      call("slots.list", { loopId: loop.id, limit: 10, cursor: null });
      call("runs.list", { loopId: loop.id, status: null, label: null, since: null, limit: 10, cursor: null });
    }
    const [declared] = call<{ id: string; name: string; revision: number }[]>("declared.loops", { names: ["skip2"] });
    const seen = { loopId: declared?.id, name: "skip2", revision: declared?.revision };
    const policy = loopPolicy.parse({ priority: 1 });
    const added = {
      name: "added",
      schedule: { kind: "dynamic", firstAt: 0 },
      target,
      policy,
      hostPin: null,
      managedBy: "/f",
    };
    call("declared.apply", {
      changes: {
        seen: [seen],
        loops: {
          add: [{ draft: added, paused: null }],
          change: [{ loopId: seen.loopId, change: { policy }, managedBy: "/f" }],
          adopt: [{ loopId: seen.loopId, managedBy: "/f" }],
          archive: [],
        },
        accounts: { add: [], change: [], remove: [] },
        limits: {
          set: [{ resource: "folder:/a", limit: 1, before: null, managedBy: "/f" }],
          remove: [],
        },
      },
      limits,
    });
    call("declared.owned", { from: "/", to: "0" });
    call("declared.rest", {});
    const { run } = call<{ run: { id: string } }>("runs.add", draft);
    call("runs.add", draft);
    const pass = call<{ mine: { attempt: { id: string; token: number } }[] }>("admission.pass", { hostId, limits });
    for (const { attempt } of pass.mine) {
      const at = { attemptId: attempt.id, token: attempt.token };
      call("attempts.start", { ...at, bootId: "b", folder: "f", awakeAt: 1 });
      call("attempts.run", { ...at, pid: 2, pidStarted: "1", startedAt: 1 });
      call("attempts.adopt", { ...at, hostId, incarnation: 2, leaseMs: 1 });
      call("attempts.ending", { ...at, token: at.token + 1, by: "cancel" });
      call("attempts.settle", { ...at, outcome, limits });
      call("attempts.settle", { ...at, token: at.token + 1, outcome, limits });
    }
    advance(10_000);
    for (const [name, input] of [
      ["steps.wake", { limit: 10 }],
      ["attempts.ofHost", { hostId }],
      ["attempts.toEnd", { hostId }],
      ["attempts.takeOver", { hostId, limits }],
      ["attempts.endedAmong", { attemptIds: ["a"] }],
      ["attempts.among", { attemptIds: ["a"] }],
      ["hosts.renew", { hostId, incarnation: 1, leaseMs: 1 }],
      ["hosts.report", { hostId, incarnation: 1, status: "disk" }],
      ["runs.cancel", { runId: run.id, by: "p", reason: "r", limits }],
      ["runs.get", { runId: run.id }],
      ["runs.counts", {}],
      ["runs.hooksDue", { hostId, limit: 5 }],
      ["runs.hooksDone", { runId: run.id, note: null }],
      ["loops.nextFires", { limit: 5 }],
      ["events.list", { after: null, limit: 5, runId: null }],
      ["events.list", { after: null, limit: 5, runId: run.id }],
      ["events.list", { after: "now", limit: 5, runId: null }],
      ["events.list", { after: null, limit: 5, runId: null, loopId: "l" }],
      ["runs.beforeTurn", { runId: run.id }],
      ["runs.durationsLike", { runId: run.id, limit: 20 }],
      ["slots.missed", { since: 1, limit: 5 }],
      ["loops.list", { limit: 5, cursor: null, archived: false, label: null, trouble: "failing" }],
      ["loops.list", { limit: 5, cursor: null, archived: false, label: null, trouble: "tripped" }],
      ["worktrees.list", { hostId: null, limit: 5, cursor: null, kept: true }],
      ["things.resolve", { kind: "run", ref: "abc", limit: 5 }],
      ...(["loop", "run"] as const).flatMap((kind) =>
        ["any", "active", "archived", "live", "ended"].flatMap((which) =>
          ["", "x"].map((prefix) => ["things.offer", { kind, prefix, which, among: 20, limit: 5 }] as const),
        ),
      ),
      ["admission.usage", {}],
      ["stuck.find", { hostId, limit: 10, looked: 1_000, oldMs: 1, goneMs: 1 }],
      ["stuck.newest", {}],
      ["stuck.release", { hostId, claimsOf: ["a"], slots: [{ loopId: "l", at: 1 }] }],
    ] as const)
      call(name, input);
    const work = agentTarget.parse({
      kind: "agent",
      provider: "claude",
      prompt: { digest: "a".repeat(64), bytes: 1, head: "" },
      account: "work",
      cwd: "/",
    });
    const account = { provider: "claude", name: "work", home: "/h", env: {}, secrets: {}, cap: 5 };
    call("hosts.report", { hostId, incarnation: 1, status: "up" });
    call("accounts.add", account);
    call("prompts.put", { digest: "a", content: "", bytes: 1 });
    call("prompts.get", { digest: "a" });
    for (const why of ["rate_limited", "auth", "network", "spawn"] as const) {
      const { run: agent } = call<{ run: { id: string } }>("runs.add", {
        ...draft,
        kind: "agent",
        target: work,
        idempotencyKey: null,
      });
      call("worktrees.begin", { runId: agent.id, hostId, cwd: "/", path: "/t" });
      call("worktrees.made", { runId: agent.id, made: { repository: "/", branch: "b", base: "c", baseNote: "n" } });
      const { mine } = call<{ mine: { attempt: { id: string; token: number }; run: { id: string } }[] }>(
        "admission.pass",
        { hostId, limits },
      );
      const own = mine.filter((one) => one.run.id === agent.id);
      expect(own).toHaveLength(1);
      for (const { attempt } of own) {
        const at = { attemptId: attempt.id, token: attempt.token };
        const away = why === "spawn" ? { programAway: true } : {};
        call("attempts.start", { ...at, bootId: "b", folder: "f", awakeAt: 1, sessionId: "s" });
        call("attempts.session", { ...at, sessionId: "s2" });
        call("attempts.settle", { ...at, outcome: { ...outcome, class: why, ...away }, limits });
      }
      call("accounts.release", { accountId: "claude:work" });
      call("worktrees.looked", { runId: agent.id, state: "kept", keptBecause: "k", commits: 1, diffStat: null });
      call("worktrees.get", { runId: agent.id });
      call("runs.cancel", { runId: agent.id, by: "p", reason: "r", limits });
    }
    for (const [name, input] of [
      ["accounts.get", { accountId: "claude:work" }],
      ["accounts.list", {}],
      ["accounts.enable", { accountId: "claude:work", enabled: false }],
      ["accounts.hold", { accountId: "claude:default", untilAt: null, reason: "r" }],
      ["accounts.answered", { accountId: "claude:work" }],
      ["accounts.holdProvider", { provider: "claude", untilAt: null, reason: "r" }],
      ["accounts.providerHolds", {}],
      ["accounts.releaseProvider", { provider: "claude" }],
      ["admission.setLimit", { resource: "provider:claude", limit: 1 }],
      ["admission.removeLimit", { resource: "provider:claude" }],
      ["worktrees.list", { hostId, limit: 5, cursor: null }],
      ["worktrees.list", { hostId: null, limit: 5, cursor: null }],
      ["worktrees.toTidy", { hostId, limit: 5 }],
    ] as const)
      call(name, input);
    // Of all: those that are named, and those that nothing names.
    for (const name of ["named", "free"]) call("prompts.put", { digest: name, content: "", bytes: 1 });
    advance(2 * 86_400_000);
    call("prompts.collect", { limits });
    // With runs that go, of a loop and of none.
    const cut = { ageMs: 0, keep: 1, limit: 50, after: null };
    const past = call<{ items: unknown[] }>("history.page", { after: null, limit: 2 });
    call("history.add", { runs: past.items, slots: [] });
    call("history.prunable", cut);
    expect(call<{ runs: number }>("history.prune", cut).runs).toBeGreaterThan(3);
    for (const status of [null, "running", "failed"] as const)
      for (const label of [null, "a"])
        call("runs.list", { loopId: null, status, label, since: 1, limit: 10, cursor: null });
    const scans = [...texts].flatMap(([text, name]) =>
      scansOf(connection, text).map((scan) => `${name}: ${scan}\n    ${text.replace(/\s+/g, " ")}`),
    );
    expect(scans).toEqual([]);
    const walks = [...texts].flatMap(([text, name]) =>
      walksOf(connection, text).map((walk) => `${name}: ${walk}\n    ${text.replace(/\s+/g, " ")}`),
    );
    expect(walks).toEqual([]);
    expect(texts.size).toBeGreaterThan(90);
    const cluster = process.env["DROVER_TEST_POSTGRES"];
    if (cluster === undefined) return; // DROVER_TEST_STORES=sqlite
    const looks = [...asked].filter(([text]) => LOOKS.test(texts.get(text) ?? ""));
    expect(looks.length).toBeGreaterThan(20);
    expect(
      await onPostgres(
        cluster,
        looks.map(([, query]) => query),
      ),
    ).toEqual([]);
  });

  test.skipIf(process.env["DROVER_TEST_POSTGRES"] === undefined)("a scan is seen on PostgreSQL", async () => {
    const faults = await onPostgres(process.env["DROVER_TEST_POSTGRES"] ?? "", [
      sql`select id from runs where exit_status = ${1}`,
      sql`select id from runs where loop_id = ${"l"} order by queued_at desc, id desc`,
      sql`select id from runs where loop_id = ${"l"} order by slot_at limit ${1}`,
      sql`select id from runs where loop_id = ${"l"} order by queued_at desc, id desc limit ${1}`,
    ]);
    expect(faults.map((fault) => fault.split(":")[0])).toEqual([
      "Seq Scan on runs",
      "runs_of_loop to its end",
      "runs_of_loop to its end",
    ]);
  });

  const each = <T>(...values: readonly T[]): readonly T[] => values;

  test("each combination of a list's filters walks along an index, in the order of the page", () => {
    const { call, texts, connection } = explained();
    const page = { limit: 10, cursor: null };
    for (const loopId of each(null, "l"))
      for (const status of each(null, ["failed"], ["running"], ["failed", "timed_out"], ["queued", "failed"]))
        for (const label of each(null, "a"))
          for (const rest of each({}, { kind: "agent" }, { class: "exit" }, { reason: "limit" }))
            call("runs.list", { ...page, loopId, status, label, since: 1, until: 2, ...rest });
    for (const archived of each(true, false))
      for (const rest of each({}, { status: ["paused"] }, { managedBy: "f" }, { trouble: "failing" }))
        for (const label of each(null, "a")) call("loops.list", { ...page, archived, label, ...rest });
    for (const outcome of each(null, ["missed", "skipped"]))
      call("slots.list", { ...page, loopId: "l", outcome, since: 1, until: 2 });
    const wrong: string[] = [];
    for (const [text, name] of texts) {
      const count = text.split("?").length - 1;
      const values = Array.from({ length: count }, () => null);
      const { rows } = connection.query(`explain query plan ${text}`, values, 0);
      const steps = rows as { parent: number; detail: string }[];
      for (const { detail, parent } of steps) {
        const [, how, , , index = ""] = /^(SEARCH|SCAN) (r|l|s|loops) USING (COVERING )?INDEX (\w+)/.exec(detail) ?? [];
        // Whole tables in order, from a place of their own key on: the page's limit ends that.
        const bounded = how === "SEARCH" || ["loops_listed", "loops_failing", ...BOUNDED].includes(index);
        if (/^SCAN (r|l|s|loops)\b/.test(detail) && !bounded) wrong.push(`${name}: ${detail}\n    ${text}`);
        // A sort right behind such a walk would read all that it could reach. What is live of a loop is sorted: it is no history.
        const sorts = /TEMP B-TREE FOR (LAST TERM OF )?ORDER BY/.test(detail);
        const history = steps.find(
          (one) => one.parent === parent && GROWS.test(one.detail) && !one.detail.includes(" at=?"),
        );
        if (sorts && history !== undefined) wrong.push(`${name}: ${history.detail}, ${detail}\n    ${text}`);
      }
    }
    expect(wrong).toEqual([]);
    expect(texts.size).toBeGreaterThan(60);
  });

  test("a scan is seen", () => {
    const { connection } = explained();
    expect(scansOf(connection, "select * from runs where reason = ?")).toHaveLength(1);
    expect(scansOf(connection, "select * from attempts where status = 'running'")).toHaveLength(1);
  });

  test("a walk through all that ever was is seen", () => {
    const { connection } = explained();
    expect(
      walksOf(connection, "select id from runs where loop_id = ? and finished_at is null order by id"),
    ).toHaveLength(1);
    expect(walksOf(connection, "select id from runs where loop_id = ? order by slot_at limit ?")).toHaveLength(1);
    expect(walksOf(connection, "select id from runs where loop_id = ? order by queued_at limit ?")).toEqual([]);
  });
});
