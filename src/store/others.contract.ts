/** What is done to one loop, run, account or host leaves every row of the others as it was. */
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { LoopDraft, Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import { agentTarget, type AgentTarget } from "../core/target.ts";
import { forEachStore, type OpenTestStore, type StoreClock } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql, type Sql } from "./sql.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;
const T0 = Date.UTC(2026, 0, 1);
const repo = { repository: "/repo", branch: "b", base: "1".repeat(40), baseNote: "main" };

const tables: readonly Sql[] = [
  sql`select * from accounts`,
  sql`select * from attempts`,
  sql`select * from cap_sets`,
  sql`select * from claims`,
  sql`select * from events`,
  sql`select * from holds`,
  sql`select * from hosts`,
  sql`select * from loop_labels`,
  sql`select * from loops`,
  sql`select * from prompt_looks`,
  sql`select * from prompts`,
  sql`select * from receipts`,
  sql`select * from resources`,
  sql`select * from run_labels`,
  sql`select * from runs`,
  sql`select * from sessions`,
  sql`select * from slots`,
  sql`select * from step_needs`,
  sql`select * from steps`,
  sql`select * from worktrees`,
];

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  rows<Row>(query: Sql): Promise<readonly Row[]>;
  run(...queries: readonly Sql[]): Promise<readonly number[]>;
}

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store, clock, rows, run } = await open();
  clock.set(T0);
  return { store: asStore(store), clock, rows, run };
}

const everyRow = async ({ rows }: Stage): Promise<string[]> => {
  const found: string[] = [];
  for (const query of tables) for (const row of await rows(query)) found.push(JSON.stringify(row));
  return found;
};

type Provider = "claude" | "codex";

/** One who has something of everything, in every state that it may be in. */
class Owner {
  readonly loops = new Map<string, string>();
  readonly runs = new Map<string, string>();
  readonly attempts = new Map<string, Assignment>();
  incarnation = 0;

  readonly stage: Stage;
  readonly name: string;
  readonly provider: Provider;
  readonly hostId: string;

  constructor(stage: Stage, name: string, provider: Provider, hostId: string) {
    this.stage = stage;
    this.name = name;
    this.provider = provider;
    this.hostId = hostId;
  }

  get store(): Store {
    return this.stage.store;
  }
  loop(name: string): string {
    return this.loops.get(name) ?? "";
  }
  runOf(name: string): string {
    return this.runs.get(name) ?? "";
  }
  at(name: string): { attemptId: string; token: number } {
    const attempt = this.attempts.get(name)?.attempt;
    return { attemptId: attempt?.id ?? "", token: attempt?.token ?? 0 };
  }
  digest(of = "p"): string {
    return createHash("sha256").update(`${this.name} ${of}`).digest("hex");
  }

  draft(name: string, policy: object = {}): LoopDraft {
    return {
      name: `${this.name}-${name}`,
      schedule: { kind: "interval", everyMs: MINUTE, anchorAt: 0 },
      target: commandOf(["true"]),
      policy: loopPolicy.parse({ labels: ["nightly"], breaker: 0, ...policy }),
      hostPin: this.hostId,
      managedBy: null,
    };
  }

  async addLoop(name: string, policy: object = {}): Promise<void> {
    const { id } = await this.store.loops.add({ draft: this.draft(name, policy), limits });
    this.loops.set(name, id);
  }

  async addRun(name: string, policy: object = {}, over: Partial<AgentTarget> | null = null): Promise<void> {
    const target =
      over === null
        ? commandOf(["true"], { worktree: "auto" })
        : agentTarget.parse({
            kind: "agent",
            provider: this.provider,
            prompt: { digest: this.digest(), bytes: 1, head: "p" },
            account: "work",
            cwd: "/repo",
            ...over,
          });
    const { run } = await this.store.runs.add(
      runDraft(target, { policy: runPolicy.parse({ labels: ["nightly"], ...policy }), hostPin: this.hostId }),
    );
    this.runs.set(name, run.id);
  }

  /** Lets start what may, and starts it up to its ticket; sessions for agents. */
  async start(name: string, upTo: "reserved" | "running" = "running"): Promise<void> {
    const { mine } = await this.store.admission.pass({ hostId: this.hostId, limits });
    const one = mine[0];
    if (one === undefined || mine.length > 1) throw new Error(`${name}: ${mine.length} were let in`);
    this.attempts.set(name, one);
    this.runs.set(name, one.run.id);
    if (upTo === "reserved") return;
    const at = this.at(name);
    const sessionId = one.attempt.accountId === null ? null : `${this.name}-${name}`;
    await this.store.attempts.start({ ...at, bootId: "b", folder: `${at.attemptId}.1`, awakeAt: 0, sessionId });
    await this.store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt: this.stage.clock.now() });
  }

  settle(name: string, over: Parameters<typeof outcomeOf>[0] = {}) {
    return this.store.attempts.settle({ ...this.at(name), outcome: outcomeOf(over), limits });
  }

  async plan(): Promise<void> {
    await this.store.loops.planDue({ cause: "late", limits });
  }

  async join(): Promise<void> {
    const { incarnation } = await this.store.hosts.join({
      hostId: this.hostId,
      name: this.name,
      machineId: this.name,
      bootId: this.name,
      version: "0",
      leaseMs: limits.leaseMs,
      commandCap: 50,
      agentCap: 50,
    });
    this.incarnation = incarnation;
  }

  async settleIn(): Promise<void> {
    const { store, name, provider } = this;
    await this.join();
    await store.prompts.put({ digest: this.digest(), content: name, bytes: 1 });
    await store.prompts.put({ digest: this.digest("free"), content: name, bytes: 1 });
    for (const account of ["work", "full", "spare"])
      await store.accounts.add({ provider, name: account, home: `/${name}/${account}`, env: {}, secrets: {}, cap: 9 });
    await store.admission.setLimit({ resource: `folder:/${name}`, limit: 1 });

    // Ended: long ago, with a slot; with a hook that is due.
    await this.addLoop("old");
    this.stage.clock.advance(MINUTE);
    await this.plan();
    await this.start("old");
    await this.settle("old");
    await store.loops.pause({ loopId: this.loop("old"), reason: "over", limits });
    await this.addRun("hook", { onFinish: "true" });
    await this.start("hook");
    await this.settle("hook");

    // A tree in each state.
    for (const [run, tree] of [
      ["making", null],
      ["made", repo],
      ["kept", repo],
    ] as const) {
      await this.addRun(run);
      const runId = this.runOf(run);
      await store.worktrees.begin({ runId, hostId: this.hostId, cwd: "/repo", path: `/trees/${runId}` });
      if (tree !== null) await store.worktrees.made({ runId, made: tree });
      if (run === "kept")
        await store.worktrees.looked({ runId, state: "kept", keptBecause: "dirty", commits: 1, diffStat: "1" });
      await store.runs.cancel({ runId, by: name, reason: "r", limits });
    }

    // Waiting: for another try, for a limit's end.
    await this.addRun("retry", { attempts: 9 });
    await this.start("retry");
    await this.settle("retry", { kind: "failed", class: "exit", exitStatus: 1 });
    await this.addRun("limited", { attempts: 9 }, { account: "full" });
    await this.start("limited");
    await this.settle("limited", { kind: "failed", class: "rate_limited", exitStatus: 1, message: "slow down" });

    // At work: agents with sessions, a command; let in, not started yet.
    for (const run of ["agent", "second"]) {
      await this.addRun(run, { attempts: 9 }, {});
      await this.start(run);
    }
    await this.addRun("command", { attempts: 9 });
    await this.start("command");
    await this.addRun("reserved");
    await this.start("reserved", "reserved");
    // Where it works something has changed outside of its tree.
    const runId = this.runOf("agent");
    await store.worktrees.begin({ runId, hostId: this.hostId, cwd: "/repo", path: `/trees/${runId}` });

    // Loops: with one run at work and one that waits for its turn; with a try that waits; paused and archived.
    await this.addLoop("queue", { overlap: "queue" });
    await this.addLoop("try", { attempts: 9, overlap: "skip" });
    await this.addLoop("cancel", { overlap: "cancel" });
    await this.addLoop("shelved");
    await store.loops.archive({ loopId: this.loop("shelved"), limits });
    await this.addLoop("held");
    await store.loops.pause({ loopId: this.loop("held"), reason: "r", limits });

    await store.runs.cancel({ runId: this.runOf("second"), by: name, reason: "r", limits });
    await store.accounts.hold({ accountId: `${provider}:spare`, untilAt: null, reason: "r" });
    await store.accounts.holdProvider({ provider, untilAt: null, reason: "r" });
    // In the queue as long as its provider is held.
    await this.addRun("ready", {}, {});
  }

  /** Two turns of its loops: a run at work in each, and one behind it where they queue. */
  async turn(): Promise<void> {
    this.stage.clock.advance(MINUTE);
    await this.plan();
  }
}

forEachStore("the others", (open, kind) => {
  test("what is done to one leaves every row of the others as it was", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    // The other lives later, so that nothing of it is due; its rows come first, where a statement without a key would look.
    clock.set(T0 + 10 * DAY);
    const other = new Owner(stage, "other", "codex", "host_00000000000000000000000001");
    await other.settleIn();
    // Of the same names, but of another kind; and what was over before.
    const hold = (kind: string, id: string, source: string, clearedAt: number | null) =>
      sql`insert into holds (subject_kind, subject_id, source, reason, cleared_at, created_at)
          values (${kind}, ${id}, ${source}, 'r', ${clearedAt}, 1)`;
    await stage.run(
      hold("account", "claude", "person", null),
      hold("provider", "claude:full", "person", null),
      hold("provider", "claude:spare", "person", null),
      hold("account", "claude:full", "quota", 5),
      hold("provider", "claude", "auth", 5),
    );
    const before = await everyRow(stage);

    const unchanged = async (what: string): Promise<void> => {
      const now = new Set(await everyRow(stage));
      const changed = before.filter((row) => !now.has(row));
      expect(changed, what).toEqual([]);
    };

    clock.set(T0);
    const one = new Owner(stage, "one", "claude", "host_00000000000000000000000002");
    await one.settleIn();
    await unchanged("settling in");
    await one.turn();
    await one.turn();
    await unchanged("two turns of its loops");
    const { provider, hostId } = one;
    const person = { by: "person", parentRunId: null, limits };

    const steps: Record<string, () => Promise<unknown>> = {
      "a session": () => store.attempts.session({ ...one.at("agent"), sessionId: "another" }),
      ending: () => store.attempts.ending({ ...one.at("agent"), by: "timeout" }),
      "an agent's end": () =>
        one.settle("agent", {
          escaped: { commits: [], files: ["a"], more: 0 } as never,
          agent: {
            sessionId: "another",
            usage: null,
            resetAt: null,
            resetSource: null,
            httpStatus: null,
            refusedTools: [],
          },
        }),
      "an adoption": () =>
        store.attempts.adopt({
          ...one.at("command"),
          hostId,
          incarnation: one.incarnation + 1,
          leaseMs: limits.leaseMs,
        }),
      "a stop of what has not started": () => one.settle("reserved", { kind: "never_started", class: "spawn" }),
      "a renewal": () => store.hosts.renew({ hostId, incarnation: one.incarnation, leaseMs: limits.leaseMs }),
      "a report": () => store.hosts.report({ hostId, incarnation: one.incarnation, status: "disk" }),
      "a report of what is over": () => store.hosts.report({ hostId, incarnation: one.incarnation, status: "up" }),
      "a cancel of what waits": () => store.runs.cancel({ runId: one.runOf("retry"), by: "p", reason: "r", limits }),
      "a cancel of what is at work": () =>
        store.runs.cancel({ runId: one.runOf("command"), by: "p", reason: "r", limits }),
      "a hook's end": () => store.runs.hooksDone({ runId: one.runOf("hook"), note: "n" }),
      "a retry": () => store.runs.retry({ runId: one.runOf("hook"), by: "p", limits }),
      "an account's release": async () =>
        expect(await store.accounts.release({ accountId: `${provider}:full` })).toMatchObject({ woken: 1 }),
      "an answer under an account": () => store.accounts.answered({ accountId: `${provider}:full` }),
      "an account that is switched off": () =>
        store.accounts.enable({ accountId: `${provider}:spare`, enabled: false }),
      "an account's hold": () => store.accounts.hold({ accountId: `${provider}:spare`, untilAt: null, reason: "s" }),
      "a provider's release": () => store.accounts.releaseProvider({ provider }),
      "an account's removal": () => store.accounts.remove({ accountId: `${provider}:spare` }),
      "a limit's removal": () => store.admission.removeLimit({ resource: "folder:/one" }),
      "a tree that is not made": () => store.worktrees.made({ runId: one.runOf("making"), made: null }),
      "a tree that is kept": () =>
        store.worktrees.looked({
          runId: one.runOf("made"),
          state: "kept",
          keptBecause: "dirty",
          commits: 1,
          diffStat: "2",
        }),
      "a tree that is gone": () =>
        store.worktrees.looked({
          runId: one.runOf("kept"),
          state: "removed",
          keptBecause: null,
          commits: 1,
          diffStat: "2",
        }),
      "a loop by hand, with a try that waits": async () => {
        const { mine } = await store.admission.pass({ hostId, limits });
        for (const { attempt, run } of mine) {
          one.attempts.set(run.id, mine.find((granted) => granted.attempt.id === attempt.id) as Assignment);
          if (run.loopId === one.loop("try"))
            await one.settle(run.id, { kind: "failed", class: "exit", exitStatus: 1, startedAt: clock.now() });
        }
        expect(await store.loops.runNow({ loopId: one.loop("try"), ...person })).toMatchObject({
          source: "retry_slot",
        });
      },
      "a loop by hand, over what is at work": () => store.loops.runNow({ loopId: one.loop("cancel"), ...person }),
      "a loop by hand, a slot that is due": async () => {
        clock.advance(MINUTE);
        expect(await store.loops.runNow({ loopId: one.loop("cancel"), ...person })).toMatchObject({
          source: "due_slot",
        });
      },
      "one turn more": () => one.plan(),
      "a new name": () => store.loops.rename({ loopId: one.loop("queue"), name: "one-queued" }),
      "an edit": () =>
        store.loops.edit({
          loopId: one.loop("queue"),
          change: { policy: loopPolicy.parse({ labels: ["weekly"], overlap: "queue" }) },
          limits,
        }),
      "a pause": () => store.loops.pause({ loopId: one.loop("queue"), reason: "r", limits }),
      "a loop that is put away": () => store.loops.archive({ loopId: one.loop("queue"), limits }),
      "a loop that comes back, paused": () => store.loops.unarchive({ loopId: one.loop("queue"), limits }),
      "a loop that goes on": () => store.loops.resume({ loopId: one.loop("queue"), limits }),
      "a loop that comes back": () => store.loops.unarchive({ loopId: one.loop("shelved"), limits }),
      "a loop's removal": () => store.loops.remove({ loopId: one.loop("held") }),
      "steps whose time has come": () => store.steps.wake({ limit: 100 }),
      "what a file declares": async () => {
        const seen = await store.declared.loops({ names: ["one-shelved", "one-cancel", "one-try"] });
        const [cancel, shelved, tried] = seen;
        await store.declared.apply({
          changes: {
            seen: seen.map(({ id, name, revision }) => ({ loopId: id, name, revision })),
            loops: {
              add: [],
              change: [{ loopId: shelved?.id ?? "", change: { target: commandOf(["false"]) }, managedBy: "/f" }],
              adopt: [{ loopId: cancel?.id ?? "", managedBy: "/f" }],
              archive: [{ loopId: tried?.id ?? "" }],
            },
            accounts: {
              add: [],
              change: [
                {
                  before: { provider, name: "full", home: "/one/full", env: {}, secrets: {} },
                  draft: { provider, name: "full", home: "/new", env: {}, secrets: {}, cap: null },
                  keepsCap: false,
                  managedBy: "/f",
                },
              ],
              remove: [],
            },
            limits: {
              set: [],
              remove: [{ resource: `account:${provider}:work`, before: 9 }],
            },
          },
          limits,
        });
      },
      "what is stuck": async () => {
        await stage.run(
          sql`insert into claims (attempt_id, resource_key, created_at) values (${one.at("hook").attemptId}, 'one', 1)`,
          sql`update slots set outcome = null where loop_id = ${one.loop("old")}`,
        );
        const [slot] = await stage.rows<{ at: number }>(
          sql`select at from slots where loop_id = ${one.loop("old")} order by at limit 1`,
        );
        const slots = [{ loopId: one.loop("old"), at: slot?.at ?? 0 }];
        expect(await store.stuck.release({ hostId, claimsOf: [one.at("hook").attemptId], slots })).toEqual({
          claims: 1,
          slots: 1,
        });
      },
      "prompts that nobody needs": async () => {
        clock.set(T0 + 3 * DAY);
        expect(await store.prompts.collect({ limits })).toMatchObject({ removed: 1 });
      },
      history: async () => {
        const { runs } = await store.history.prune({ ageMs: DAY, keep: 0, limit: 100, after: null });
        expect(runs).toBeGreaterThan(2);
      },
      "a host that leaves": () => store.hosts.leave({ hostId, incarnation: one.incarnation, backBy: null }),
      "a host that comes again": () => one.join(),
    };
    for (const [what, step] of Object.entries(steps)) {
      await step();
      // Where it costs nothing each step is seen alone.
      if (kind.way === "memory") await unchanged(what);
    }
    await unchanged("all that was done");
  });
});
