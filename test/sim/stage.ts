/** A small stage for tests of the engine: one simulated host, the real operations, and time that the test moves. */
import { makeId } from "../../src/core/ids.ts";
import { defaultLimits, type Limits } from "../../src/core/limits.ts";
import { loopPolicy, runPolicy } from "../../src/core/loop.ts";
import type { Launch, Store } from "../../src/core/ports.ts";
import type { LoopRecord, RunTree } from "../../src/core/records.ts";
import type { Schedule } from "../../src/core/schedule.ts";
import { type AgentTarget, agentTarget, type CommandTarget, type Target } from "../../src/core/target.ts";
import { type Engine, startEngine } from "../../src/engine/engine.ts";
import type { EnginePorts, HeartbeatRequest, PointName } from "../../src/engine/ports.ts";
import { operations } from "../../src/store/operations.ts";
import { openMemoryStore } from "../../src/store/sqlite.ts";
import { commandOf, runDraft } from "../drafts.ts";
import { chanceOf } from "./chance.ts";
import { commandsOnly, createMachine, habitOf, type Machine, type Plan } from "./machine.ts";
import { clockOf, type Context, createContext, createHostTime, createTime, type HostTime, type Time } from "./time.ts";

export const BEGINS_AT = Date.UTC(2026, 2, 2);

export interface StageOptions {
  /** What a command does, by its first argument; what is not said is a second's success. */
  readonly plans?: Readonly<Record<string, Partial<Plan>>>;
  /** The same for each launch in turn, whatever it is called. */
  readonly planOf?: (launch: Launch) => Partial<Plan>;
  readonly limits?: Partial<Limits>;
  readonly commandCap?: number;
  readonly agentCap?: number;
  readonly untilIdle?: boolean;
  readonly sweepMs?: number;
  /** Wraps the ports of every daemon: tests put faults and counters there. */
  readonly wrap?: (ports: EnginePorts) => EnginePorts;
  readonly point?: (name: PointName, id: string) => void | Promise<void>;
}

export interface Daemon {
  readonly engine: Engine;
  readonly context: Context;
}

export interface Stage {
  readonly time: Time;
  readonly host: HostTime;
  readonly machine: Machine;
  readonly hostId: string;
  readonly limits: Limits;
  /** The store, for people: what they do is told to the daemon. */
  readonly store: Store;
  readonly log: { readonly level: string; readonly event: string; readonly data: Readonly<Record<string, unknown>> }[];
  /** Variables of each launch, and how often each attempt started. */
  readonly launches: Launch[];
  readonly starts: Map<string, number>;
  /** Calls of the store by daemons, by name. */
  readonly calls: string[];
  start(): Promise<Daemon>;
  /** Moves time on and lets everything happen that is due. */
  run(ms: number): Promise<void>;
  /** Moves time on until it holds; fails after that much of it. */
  until(holds: () => boolean | Promise<boolean>, withinMs?: number): Promise<void>;
  addRun(argument: string, policy?: Record<string, unknown>): Promise<string>;
  /** Of an agent whose plan has that name. */
  addAgentRun(habit: string, policy?: Record<string, unknown>, over?: Partial<AgentTarget>): Promise<string>;
  addLoop(schedule: Schedule, argument: string, policy?: Record<string, unknown>): Promise<LoopRecord>;
  /** Of an agent whose plan has that name. */
  addAgentLoop(schedule: Schedule, habit: string, policy?: Record<string, unknown>): Promise<LoopRecord>;
  tree(runId: string): Promise<RunTree>;
  rows<Row>(query: Parameters<ReturnType<typeof openMemoryStore>["rows"]>[0]): readonly Row[];
}

export const target = (argument: string): CommandTarget =>
  commandOf(["work", argument], { expect: argument === "checked" ? ["output"] : [] });

/** The prompt of every simulated agent, and the digest that it is kept by. */
export const PROMPT = "Do what is to be done.";
const PROMPT_DIGEST = "5".repeat(64);

const agent = (habit: string, over: Partial<AgentTarget>): AgentTarget => ({
  ...agentTarget.parse({
    kind: "agent",
    provider: "claude",
    prompt: { digest: PROMPT_DIGEST, bytes: PROMPT.length, head: habit },
    cwd: "/project",
    worktree: "off",
  }),
  ...over,
});

const usual: Plan = {
  durationMs: 1_000,
  exit: 0,
  ignoresTerm: false,
  leaves: 0,
  printEveryMs: 100,
  printsForMs: Number.POSITIVE_INFINITY,
  shimDies: "never",
  output: null,
  unmet: null,
};

export function createStage(options: StageOptions = {}): Stage {
  const chance = chanceOf("stage");
  const ids = chance.fork("ids");
  const time = createTime();
  const host = createHostTime(time, BEGINS_AT);
  const limits: Limits = { ...defaultLimits, ...options.limits };
  const hostId = makeId("host", BEGINS_AT, ids.bytes(10));
  const launches: Launch[] = [];
  const starts = new Map<string, number>();
  const calls: string[] = [];
  const log: Stage["log"] = [];
  let engine: Engine | null = null;

  const machine = createMachine({
    time: host,
    chance: chance.fork("machine"),
    planOf(launch) {
      launches.push(launch);
      return { ...usual, ...(options.planOf?.(launch) ?? options.plans?.[habitOf(launch)]) };
    },
    onStart: (attemptId) => starts.set(attemptId, (starts.get(attemptId) ?? 0) + 1),
    onEnd: () => undefined,
    skipTicket: false,
    losesBell: () => false,
  });
  const memory = openMemoryStore({
    table: operations,
    clock: { now: host.now },
    mint: (kind, at) => makeId(kind, at, ids.bytes(10)),
  });
  const all = memory.store as unknown as Record<string, Record<string, (input: unknown) => Promise<unknown>>>;
  const through = (before: (name: string) => void, after: () => void): Store =>
    Object.fromEntries(
      Object.entries(all).map(([noun, verbs]) => [
        noun,
        Object.fromEntries(
          Object.entries(verbs).map(([verb, call]) => [
            verb,
            async (input: unknown) => {
              before(`${noun}.${verb}`);
              const answer = await call(input);
              after();
              return answer;
            },
          ]),
        ),
      ]),
    ) as unknown as Store;
  const people = through(
    () => undefined,
    () => engine?.poke("all"),
  );

  const putPrompt = () => people.prompts.put({ digest: PROMPT_DIGEST, content: btoa(PROMPT), bytes: PROMPT.length });

  const addLoop = (name: string, schedule: Schedule, of: Target, policy: Record<string, unknown>) =>
    people.loops.add({
      draft: {
        name: `loop ${name}`,
        schedule,
        target: of,
        policy: loopPolicy.parse(policy),
        hostPin: hostId,
        managedBy: null,
      },
      limits,
    });

  async function add(target: Target, policy: Record<string, unknown>): Promise<string> {
    const { run: made } = await people.runs.add(
      runDraft(target, { policy: runPolicy.parse(policy), hostPin: hostId, limits }),
    );
    return made.id;
  }

  function startHeartbeat(context: Context, request: HeartbeatRequest) {
    let live = true;
    const beat = (): void => {
      host.after(request.everyMs, () =>
        context.deliver(() => {
          if (live) memory.store.hosts.renew(request).then(request.onAnswer, () => undefined);
          beat();
        }),
      );
    };
    beat();
    return { beat: (has: boolean) => void (live = has), stop: async () => void (live = false) };
  }

  async function run(ms: number): Promise<void> {
    const until = time.now + ms;
    await time.settle();
    while (await time.step(until));
  }

  return {
    time,
    host,
    machine,
    hostId,
    limits,
    store: people,
    log,
    launches,
    starts,
    calls,
    rows: (query) => memory.rows(query),
    async start() {
      const context = createContext(host);
      const ports: EnginePorts = {
        clock: clockOf(host, context),
        random: { bytes: (count) => ids.bytes(count) },
        store: through(
          (name) => calls.push(name),
          () => undefined,
        ),
        spawner: machine.spawnerFor(context),
        files: machine.filesFor(context),
        ...commandsOnly,
        agents: machine.agentsFor(context),
        notifier: { hook: async () => ({ exit: 0, tail: "" }) },
        startHeartbeat: (request) => startHeartbeat(context, request),
        signToken: ({ runId, depth }) => `token of ${runId} at ${depth}`,
        log: (level, event, data = {}) => void log.push({ level, event, data }),
        ...(options.point === undefined ? {} : { point: options.point }),
      };
      let started: Engine | null = null;
      const starting = startEngine(options.wrap?.(ports) ?? ports, {
        host: {
          hostId,
          name: "stage",
          machineId: "machine",
          bootId: ports.spawner.bootId,
          version: "0",
          leaseMs: limits.leaseMs,
          commandCap: options.commandCap ?? 4,
          agentCap: options.agentCap ?? 1,
        },
        limits,
        socket: "/run/drover.sock",
        untilIdle: options.untilIdle ?? false,
        sweepMs: options.sweepMs ?? null,
      }).then((made) => (started = made));
      for (let waitedMs = 0; started === null && waitedMs < 60_000; waitedMs += 10) await run(10);
      engine = await starting;
      await run(1);
      return { engine, context };
    },
    run,
    async until(holds, withinMs = 60_000) {
      const end = time.now + withinMs;
      while (!(await holds())) {
        if (time.now >= end) throw new Error(`it did not come to hold within ${withinMs} ms`);
        await run(Math.max(10, withinMs / 5_000));
      }
    },
    addRun: (argument, policy = {}) => add(target(argument), policy),
    async addAgentRun(habit, policy = {}, over = {}) {
      await putPrompt();
      return add(agent(habit, over), policy);
    },
    addLoop: (schedule, argument, policy = {}) => addLoop(argument, schedule, target(argument), policy),
    async addAgentLoop(schedule, habit, policy = {}) {
      await putPrompt();
      return addLoop(habit, schedule, agent(habit, {}), policy);
    },
    async tree(runId) {
      const tree = await memory.store.runs.get({ runId });
      if (tree === null) throw new Error(`no run ${runId}`);
      return tree;
    },
  };
}
