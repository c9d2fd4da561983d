/** A world for the engine: hosts with daemons over one store, faults by chance, and the invariants after every step. */
import type { AgentVerdict } from "../../src/core/agent.ts";
import { AppError } from "../../src/core/errors.ts";
import { makeId } from "../../src/core/ids.ts";
import { defaultLimits, type Limits } from "../../src/core/limits.ts";
import { loopPolicy, runPolicy, type LoopPolicy } from "../../src/core/loop.ts";
import type { Launch, Store } from "../../src/core/ports.ts";
import type { Schedule } from "../../src/core/schedule.ts";
import { agentTarget, type Target } from "../../src/core/target.ts";
import { startEngine, type Engine } from "../../src/engine/engine.ts";
import type { EnginePorts, HeartbeatRequest } from "../../src/engine/ports.ts";
import type { MintId } from "../../src/store/driver.ts";
import { operations } from "../../src/store/operations.ts";
import { type OperationTable, storeOf } from "../../src/store/operation.ts";
import { diskFull, outcomeUnknown, storeUnreachable } from "../../src/store/errors.ts";
import { Crash } from "../../src/store/sqlite-group.ts";
import { noSpace } from "../../src/execution/attempt-folder.ts";
import { commandOf, runDraft } from "../drafts.ts";
import type { Cluster } from "../postgres.ts";
import { type Chance, chanceOf } from "./chance.ts";
import { type Broken, createChecks } from "./checks.ts";
import { commandsOnly, createMachine, habitOf, type Machine, type Plan } from "./machine.ts";
import { createFaults, type FaultKind } from "./faults.ts";
import { keepFlows, loadFlows, someFlow } from "./flows.ts";
import { createMemorySimStore, type Fate } from "./memory-store.ts";
import { plantIn, type Plant } from "./plants.ts";
import { openPostgresSimStore } from "./postgres-store.ts";
import type { AnyOperation, SimStore, Watcher } from "./store.ts";
import {
  clockOf,
  type Context,
  createContext,
  createHostTime,
  createTime,
  type HostTime,
  never,
  type Time,
} from "./time.ts";
import { ZONES } from "./walk.ts";

const HOUR = 3_600_000;
const MINUTE = 60_000;
/** Mondays some days before a clock change, in spring and in autumn: worlds begin at one or the other. */
const BEGINNINGS = [Date.UTC(2026, 2, 2), Date.UTC(2026, 9, 19)] as const;

export interface WorldOptions {
  readonly seed: number;
  readonly hosts: number;
  readonly loops: number;
  readonly faults: boolean;
  /** Kinds of faults and single strikes that do not happen. */
  readonly without: ReadonlySet<string>;
  /** Calls of a port between two crashes, on the average. */
  readonly crashEvery: number;
  readonly plant: Plant | null;
  /** The server whose databases hold the store; SQLite in memory when null. */
  readonly cluster: Cluster | null;
  /** Rows whose order no statement says come in any: nothing may depend on it. */
  readonly shuffled: boolean;
  /** Called with each line of what happens. */
  readonly trace: ((line: string) => void) | null;
}

/** Limits that are coarser than a product's, so that a month takes seconds: nothing depends on their size. */
export const simLimits: Limits = {
  ...defaultLimits,
  longestSleepMs: 15 * MINUTE,
  watchMs: 10 * MINUTE,
  idleLookMs: 5 * MINUTE,
  agentLookMs: 5 * MINUTE,
  renewMs: 15 * MINUTE,
  leaseMs: HOUR,
  takeoverMs: 3 * HOUR,
  storeBackoffCapMs: MINUTE,
  janitorMs: 24 * HOUR,
  logRetentionMs: 3 * 24 * HOUR,
};
const SWEEP_MS = HOUR;

interface Daemon {
  readonly context: Context;
  engine: Engine | null;
  stopping: boolean;
}

interface Host {
  readonly id: string;
  readonly time: HostTime;
  readonly machine: Machine;
  daemon: Daemon | null;
  /** Until when the world disturbs it, in true time: whoever waits has a right to be served some time after. */
  disturbedAt: number;
}

export interface World {
  readonly time: Time;
  readonly broken: Broken | null;
  readonly hosts: readonly Host[];
  readonly crashes: number;
  /** Names of the faults that happened. */
  readonly struck: readonly string[];
  /** Runs the world until that true time, or until something is broken. */
  runUntil(ms: number): Promise<void>;
  begin(): Promise<void>;
  /** Attempts that were granted. */
  readonly claims: number;
  /** Slots by outcome. */
  tally(): Promise<Readonly<Record<string, number>>>;
  /** No more faults and no more wishes of people; everything that is under way comes to its end. */
  drain(): Promise<void>;
  close(): Promise<void>;
}

const PROMPT_DIGEST = "a".repeat(64);
const ACCOUNT = "claude:default";
/** Of two folders, so that agents stand in each other's way now and then. */
const targetOf = (habit: string, chance: Chance): Target =>
  habit === "agent"
    ? agentTarget.parse({
        kind: "agent",
        provider: "claude",
        prompt: { digest: PROMPT_DIGEST, bytes: 6, head: habit },
        cwd: chance.pick(["/a", "/b"]),
        worktree: "off",
      })
    : habit === "flow"
      ? someFlow(chance)
      : commandOf(["work", habit]);
const HABITS = ["quick", "quick", "mixed", "mixed", "long", "hang", "fail", "tree", "agent", "agent", "flow"] as const;

export async function createWorld(options: WorldOptions): Promise<World> {
  await loadFlows();
  const { seed } = options;
  const beginsAt = BEGINNINGS[seed % 2] ?? BEGINNINGS[0];
  const chance = chanceOf(`seed ${seed}`);
  const idChance = chance.fork("ids");
  const people = chance.fork("people");
  const orderChance = chance.fork("order");
  const engineChance = chance.fork("engine");
  const time = createTime(() => store.busy());
  let broken: Broken | null = null;
  let crashes = 0;
  /** Until then the store answers nobody, in true time. */
  let awayUntil = 0;
  /** Until then its disk takes nothing. */
  let fullUntil = 0;
  let refusals = 0;

  const trace = (what: string) => options.trace?.(`${String(time.steps).padStart(7)} ${stamp(time.now)} ${what}`);
  const faults = createFaults(chance.fork("faults"), options.without, (name) => trace(`FAULT ${name}`));
  if (!options.faults) faults.end();
  const fail = (found: Broken) => {
    trace(`BROKEN ${found.invariant}: ${found.what}`);
    broken ??= found;
  };

  const hosts: Host[] = Array.from({ length: options.hosts }, (_, i) => {
    const hostTime = createHostTime(time, beginsAt);
    return {
      id: makeId("host", beginsAt, idChance.bytes(10)),
      time: hostTime,
      machine: createMachine({
        time: hostTime,
        chance: chance.fork(`machine ${i}`),
        planOf,
        onStart: (attemptId) => {
          trace(`host ${i} started ${attemptId}`);
          void store.look(checks.onStart(attemptId));
        },
        onEnd: (attemptId) => void store.look(checks.onEnd(attemptId)),
        skipTicket: options.plant === "skip_ticket",
        losesBell: () => faults.strikes("lost_bell", 0.05),
      }),
      daemon: null,
      disturbedAt: 0,
    };
  });
  const [first] = hosts;
  // On one machine the store's clock is its host's; a database elsewhere has its own, whatever the hosts' say.
  const storeNow = () =>
    hosts.length === 1 && first !== undefined ? first.time.now() : beginsAt + Math.floor(time.now);

  const clockOfHost = (hostId: string) => hosts.find(({ id }) => id === hostId)?.time.now() ?? 0;
  const table: OperationTable = options.plant === null ? operations : plantIn(operations, options.plant, clockOfHost);
  const checks = createChecks(fail);
  const watcher: Watcher = {
    before: checks.before,
    *after(calls, changed, events) {
      // Who changed nothing wakes nobody, or two hosts would wake each other for ever.
      const tells = yield* checks.after(calls, changed, events);
      if (server === null && tells && calls.some(({ entry }) => entry.wakes)) tellOthers(calls[0]?.context ?? null);
    },
  };
  const fate: Fate = {
    cut: () => {
      if (faults.strikes("cut", 1 / 15_000)) throw new Crash("cut");
    },
    refuses: () => (time.now < fullUntil ? (refusals++ % 3 === 2 ? ioError() : diskFull("the store")) : null),
    deliver(context, commit) {
      if (!faults.strikes("slow_disk", 0.01)) return commit();
      const of = faults.of("slow_disk");
      const ms = of.hit(0.9) ? of.int(1, 2_000) : of.int(2_000, 5 * MINUTE);
      hosts[0]?.time.after(ms, () => context.deliver(commit));
    },
    dies(context, calls) {
      if (calls > 1 && faults.strikes("torn", 1 / 800)) return faults.of("torn").int(0, calls);
      if (!faults.strikes("writer", 1 / 6_000)) return null;
      // The daemon hears of it at once, and ends.
      const host = hosts.find(({ daemon }) => daemon?.context === context);
      if (host !== undefined)
        host.time.after(faults.of("writer").int(0, 50), () => crash(host, context, "its writer died", false));
      return { kept: faults.of("writer").hit(0.5), error: outcomeUnknown("the store", null) };
    },
  };
  const serverChance = chance.fork("server's faults");
  const mint: MintId = (kind, at) => makeId(kind, at, idChance.bytes(10));
  const server =
    options.cluster === null
      ? null
      : await openPostgresSimStore({
          cluster: options.cluster,
          table,
          time,
          chance: chance.fork("server"),
          now: storeNow,
          mint,
          watcher,
          calm: () => faults.over,
          fail,
          onHold(ms) {
            if (quiet) return;
            const soon = (happen: () => void) => time.at(time.now + serverChance.int(0, Math.min(ms, 40)), happen);
            for (const { daemon } of hosts)
              if (daemon !== null && serverChance.hit(0.5))
                soon(() => daemon.context.deliver(() => daemon.engine?.poke("all")));
            if (serverChance.hit(0.3)) soon(() => void act());
            if (serverChance.hit(0.7)) soon(() => void server?.readFeed());
          },
          onCut(context, operation) {
            const host = hosts.find(({ daemon }) => daemon?.context === context);
            if (host === undefined) context.die();
            else crash(host, context, `within ${operation}`);
          },
          onPoke(context) {
            // Whoever misses one looks by himself in time.
            if (faults.strikes("lost_poke", 0.1)) return;
            const host = hosts.find(({ daemon }) => daemon?.context === context);
            host?.time.after(5, () => context.deliver(() => host.daemon?.engine?.poke("all")));
          },
        });
  const store: SimStore =
    server ??
    createMemorySimStore({
      table,
      clock: { now: storeNow },
      mint,
      watcher,
      fate,
      joins: hosts.length === 1,
      ...(options.shuffled ? { reorder: (rows) => shuffle(rows, orderChance) } : {}),
    });

  // --- what processes do ---------------------------------------------------------------------------------------------

  function planOf(launch: Launch, fate: Chance): Plan {
    const habit = habitOf(launch) || "quick";
    const quick = fate.int(20, 20_000);
    const plan: Plan = {
      durationMs: quick,
      exit: 0,
      ignoresTerm: false,
      leaves: 0,
      printEveryMs: fate.int(100, 20_000),
      printsForMs: Number.POSITIVE_INFINITY,
      shimDies: faults.strikes("shim", 0.01)
        ? fate.pick(["before_ticket", "after_ticket", "while_running"] as const)
        : "never",
      output: fate.hit(0.2) ? JSON.stringify({ nextAfterMs: fate.int(10 * MINUTE, 5 * HOUR) }) : null,
      unmet: null,
    };
    switch (habit) {
      case "agent":
        return agentPlanOf(plan, fate, launch.folder);
      case "long":
        return { ...plan, durationMs: fate.int(MINUTE, 4 * HOUR) };
      case "hang":
        return {
          ...plan,
          durationMs: fate.hit(0.5) ? quick : fate.int(3, 12) * HOUR,
          printsForMs: fate.int(0, HOUR),
          ignoresTerm: fate.hit(0.3),
        };
      case "fail":
        return { ...plan, exit: fate.hit(0.6) ? fate.int(1, 140) : 0 };
      case "tree":
        return { ...plan, leaves: fate.int(0, 3), ignoresTerm: fate.hit(0.3) };
      case "mixed": {
        const exit = fate.hit(0.15) ? fate.int(1, 255) : 0;
        const long = fate.hit(0.2) ? fate.int(MINUTE, 2 * HOUR) : quick;
        const odd = fate.next();
        if (odd < 0.02) return { ...plan, fault: fate.pick(["nocwd", "nocmd", "noexec"] as const) };
        return { ...plan, exit, durationMs: long, leaves: odd < 0.05 ? 1 : 0 };
      }
      default:
        return plan;
    }
  }

  /** An agent that works, meets the limits of its account, gets nowhere, or does not exit after its result. */
  function agentPlanOf(plan: Plan, fate: Chance, sessionId: string): Plan {
    const durationMs = fate.hit(0.3) ? fate.int(MINUTE, HOUR) : plan.durationMs;
    const resetAt = storeNow() + fate.int(10 * MINUTE, 5 * HOUR);
    const works = (ranMs: number) => ({ sessionId, progress: 1 + Math.floor(ranMs / MINUTE), answered: true });
    const ends = (of: Partial<AgentVerdict>): Plan => ({
      ...plan,
      durationMs,
      exit: 1,
      agent: { says: works, concludes: () => ({ ok: false, message: "as it was planned", ...of }) },
    });
    const odd = faults.strikes("agent", 0.45) ? 0.45 * fate.next() : 1;
    if (odd < 0.08) return ends({ class: "rate_limited" });
    if (odd < 0.14) return ends({ class: "quota", resetAt });
    if (odd < 0.16) return ends({ class: "quota" });
    if (odd < 0.18) return ends({ class: "auth" });
    if (odd < 0.23) return ends({ class: "overloaded" });
    if (odd < 0.28) return ends({ class: "protocol", sessionGone: true });
    if (odd < 0.34) return ends({ class: fate.pick(["network", "context", "no_result", "refused"] as const) });
    if (odd < 0.39) {
      const trouble = { class: fate.pick(["network", "overloaded"] as const), message: "tries again" };
      return { ...plan, durationMs: 12 * HOUR, agent: { says: () => ({ sessionId, progress: 1, trouble }) } };
    }
    const lingers = odd < 0.45;
    const says = (ranMs: number) => ({ ...works(ranMs), closed: ranMs >= durationMs });
    return {
      ...plan,
      durationMs: lingers ? durationMs + 12 * HOUR : durationMs,
      ignoresTerm: lingers && fate.hit(0.5),
      agent: { says, concludes: () => ({ sessionId }) },
    };
  }

  // --- daemons -------------------------------------------------------------------------------------------------------

  function crash(host: Host, context: Context, why: string, mayStop = true): void {
    if (!context.alive) return;
    crashes++;
    disturb(host, time.now);
    const of = faults.of("crash");
    // A zombie is only stopped: a new daemon takes its place, and it comes back to find that it is nobody any more.
    const zombie = mayStop && of.hit(0.25);
    if (zombie) {
      const ms = of.hit(0.7) ? of.int(10, 1_500) : of.int(1_500, 4 * HOUR);
      trace(`${nameOf(host)} is stopped for ${ms} ms and replaced (${why})`);
      context.stall(ms);
    } else {
      trace(`${nameOf(host)} crashed (${why})`);
      context.die();
    }
    if (host.daemon?.context !== context) return;
    host.daemon = null;
    const downMs = zombie
      ? of.int(5, 100)
      : of.hit(0.6)
        ? of.int(500, 10_000)
        : of.hit(0.7)
          ? of.int(10_000, 20 * MINUTE)
          : of.int(20 * MINUTE, 10 * HOUR);
    host.time.after(downMs, () => startDaemon(host));
  }

  const disturb = (host: Host, until: number) => {
    host.disturbedAt = Math.max(host.disturbedAt, until);
  };
  const nameOf = (host: Host) => `host ${hosts.indexOf(host)}`;

  /** What the queue of a daemon's changes waits for. */
  const inFront = new WeakMap<Context, Promise<void>>();

  /** Every call of a port may be slow, and the process may die before it or after it. */
  async function through<T>(
    host: Host,
    context: Context,
    what: string,
    work: () => T | Promise<T>,
    queued = false,
  ): Promise<T> {
    if (!context.alive) return never();
    if (faults.strikes("crash", 0.5 / options.crashEvery)) {
      crash(host, context, `before ${what}`);
      if (!context.alive) return never();
    }
    const slow = faults.strikes("slow_call", 0.02) ? faults.of("slow_call").int(1, 400) : 0;
    // Changes of a store of one's own stand in one queue: what is slow in front of it is slow for all behind.
    while (queued && inFront.has(context)) await inFront.get(context);
    if (slow > 0) {
      const passed = later(host, context, slow).then(() => void inFront.delete(context));
      if (queued) inFront.set(context, passed);
      await passed;
    }
    if (!context.alive) return never();
    let answer: T;
    try {
      answer = await work();
    } catch (error) {
      if (!context.alive) return never();
      if (!(error instanceof Crash)) throw error;
      crash(host, context, `within ${what}`);
      // One that is only stopped would never get an answer either: its call died with the store's side of it.
      context.die();
      return never();
    }
    if (faults.strikes("crash", 0.5 / options.crashEvery)) {
      crash(host, context, `after ${what}`);
      if (!context.alive) return never();
    }
    if (faults.strikes("slow_call", 0.02)) await later(host, context, faults.of("slow_call").int(1, 400));
    return context.alive ? answer : never();
  }

  const later = (host: Host, context: Context, ms: number) =>
    new Promise<void>((resolve) => host.time.after(ms, () => context.deliver(resolve)));

  const callStore = (entry: AnyOperation, input: unknown, context: Context | null): Promise<unknown> =>
    store.call({ entry, input, context }).then(
      (answer) => {
        if (options.trace !== null && entry.name !== "hosts.renew")
          trace(`store ${entry.name} ${brief(input)} -> ${brief(answer)}`);
        return answer;
      },
      (error: unknown) => {
        if (options.trace !== null) trace(`store ${entry.name} ${brief(input)} failed: ${String(error)}`);
        throw error;
      },
    );

  /** A store whose calls go through that. */
  const storeThrough = (call: (entry: AnyOperation, input: unknown) => Promise<unknown>): Store =>
    storeOf(table, call) as unknown as Store;

  /** Other daemons hear of a change, mostly. */
  function tellOthers(context: Context | null): void {
    for (const host of hosts) {
      const daemon = host.daemon;
      if (daemon === null || daemon.engine === null || daemon.context === context) continue;
      if (hosts.length > 1 && faults.strikes("lost_poke", 0.1)) continue;
      // One who shares the machine sees it within a second.
      const poke = () => daemon.context.deliver(() => daemon.engine?.poke("all"));
      host.time.after(context === null ? people.int(0, 1_000) : 5, poke);
      if (faults.strikes("repeated_poke", 0.05)) host.time.after(faults.of("repeated_poke").int(0, 5 * MINUTE), poke);
    }
  }

  function portsOf(host: Host, context: Context): EnginePorts {
    const port = storeThrough((entry, input) => {
      const work = () => {
        if (time.now < awayUntil) throw unreachableStore();
        const answer = callStore(entry, input, context);
        // What was done is done, but nobody hears of it.
        if (server === null && hosts.length > 1 && faults.strikes("lost_answer", 1 / 2_000))
          return answer.then(() => {
            throw unreachableStore();
          });
        return answer;
      };
      return through(host, context, entry.name, work, hosts.length === 1 && entry.access === "write");
    });
    const { machine } = host;
    const spawner = machine.spawnerFor(context);
    const files = machine.filesFor(context);
    const agents = machine.agentsFor(context);
    const wrap =
      <In extends unknown[], Out>(what: string, work: (...input: In) => Promise<Out>) =>
      (...input: In) =>
        through(host, context, what, () => {
          // These two look at processes, not at files.
          const reads = what !== "end" && what !== "sweep";
          if (reads && faults.strikes("bad_disk", 1 / 3_000)) throw badDisk();
          return work(...input);
        });
    return {
      clock: clockOf(host.time, context),
      random: { bytes: (count) => engineChance.bytes(count) },
      store: port,
      spawner: {
        ...spawner,
        prepare: wrap("prepare", (launch) => {
          if (host.machine.freeBytes < simLimits.minFreeBytes) throw noSpace("runs", null);
          return spawner.prepare(launch);
        }),
        ask: wrap("ask", spawner.ask),
        judge: wrap("judge", spawner.judge),
        end: wrap("end", spawner.end),
        sweep: wrap("sweep", spawner.sweep),
      },
      files: { ...files, output: wrap("output", files.output), remove: wrap("remove", files.remove) },
      ...commandsOnly,
      agents: {
        ...agents,
        read: wrap("agents.read", agents.read),
        conclude: wrap("agents.conclude", agents.conclude),
      },
      notifier: {
        hook: () =>
          through(host, context, "hook", async () => {
            await later(host, context, people.int(10, 5_000));
            return { exit: 0, tail: "" };
          }),
      },
      startHeartbeat: (request) => startHeartbeat(host, context, port, request),
      signToken: ({ runId, depth }) => `${runId}:${depth}`,
      log(level, event, data) {
        if (options.trace !== null) trace(`${nameOf(host)} ${level} ${event} ${brief(data)}`);
        if (event === "bug" && data?.["message"] !== BAD_DISK) {
          fail({
            invariant: "bug",
            what: `${String(data?.["what"])}: ${String(data?.["stack"] ?? data?.["message"])}`,
          });
        }
      },
    };
  }

  function startHeartbeat(host: Host, context: Context, store: Store, request: HeartbeatRequest) {
    const { hostId, incarnation, leaseMs, everyMs, onAnswer } = request;
    let live = true;
    let stopped = false;
    const beat = (): void => {
      if (stopped || !context.alive) return;
      host.time.after(everyMs, () =>
        context.deliver(() => {
          if (stopped) return;
          if (live || hosts.length > 1)
            store.hosts.renew({ hostId, incarnation, leaseMs }).then(onAnswer, () => undefined);
          beat();
        }),
      );
    };
    beat();
    return {
      beat(has: boolean) {
        live = has;
      },
      stop: async () => {
        stopped = true;
      },
    };
  }

  function startDaemon(host: Host): void {
    if (host.daemon !== null) return;
    const context = createContext(host.time);
    const daemon: Daemon = { context, engine: null, stopping: false };
    host.daemon = daemon;
    disturb(host, time.now);
    trace(`${nameOf(host)} starts its daemon`);
    const ports = portsOf(host, context);
    startEngine(ports, {
      host: {
        hostId: host.id,
        name: nameOf(host),
        machineId: host.id,
        bootId: ports.spawner.bootId,
        version: "0",
        leaseMs: simLimits.leaseMs,
        commandCap: 4,
        agentCap: 2,
      },
      limits: simLimits,
      socket: "",
      untilIdle: false,
      sweepMs: hosts.length > 1 ? SWEEP_MS : null,
    }).then(
      (engine) => {
        daemon.engine = engine;
        disturb(host, time.now);
        void engine.superseded().then(() => {
          trace(`${nameOf(host)} has a daemon that was superseded`);
          context.die();
          if (host.daemon !== daemon) return;
          host.daemon = null;
          host.time.after(2_000, () => startDaemon(host));
        });
      },
      (error: unknown) => {
        // The store was away: whoever started it tries again.
        trace(`${nameOf(host)} could not start: ${String(error)}`);
        if (!(error instanceof AppError)) fail({ invariant: "bug", what: String((error as Error).stack) });
        context.die();
        if (host.daemon !== daemon) return;
        host.daemon = null;
        host.time.after(5_000, () => startDaemon(host));
      },
    );
  }

  function stopDaemon(host: Host): void {
    const daemon = host.daemon;
    if (daemon === null || daemon.engine === null || daemon.stopping) return;
    daemon.stopping = true;
    disturb(host, time.now);
    const of = faults.of("stop");
    const stopRuns = of.hit(0.5);
    trace(`${nameOf(host)} stops its daemon${stopRuns ? " and its runs" : ""}`);
    void daemon.engine.stop({ drainMs: of.hit(0.5) ? 0 : 30_000, stopRuns }).then(() => {
      daemon.context.die();
      if (host.daemon !== daemon) return;
      host.daemon = null;
      host.time.after(of.int(1_000, 2 * HOUR), () => startDaemon(host));
    });
  }

  // --- what happens to the world -------------------------------------------------------------------------------------

  function reboot(host: Host, powerCut: boolean): void {
    trace(`${nameOf(host)} ${powerCut ? "loses power" : "is rebooted"}`);
    host.daemon?.context.die();
    host.daemon = null;
    host.machine.reboot(powerCut);
    disturb(host, time.now);
    const bootMs = faults.of("reboot").int(20_000, 2 * HOUR);
    host.time.after(bootMs, () => startDaemon(host));
  }

  /** What is planned: about how often it happens to a host, and what. */
  const mishaps: [kind: FaultKind, everyMs: number, happen: (host: Host, of: Chance) => void][] = [
    [
      "suspend",
      36 * HOUR,
      (host, of) => {
        const ms = of.int(10_000, 9 * HOUR);
        trace(`${nameOf(host)} sleeps for ${ms} ms`);
        disturb(host, time.now + ms);
        host.time.suspend(ms);
      },
    ],
    [
      "clock",
      96 * HOUR,
      (host, of) => {
        const ms = of.pick([HOUR, -HOUR, 5 * MINUTE, -5_000, 24 * HOUR, -24 * HOUR]);
        trace(`the clock of ${nameOf(host)} is set by ${ms} ms`);
        disturb(host, time.now);
        host.time.step(ms);
      },
    ],
    ["reboot", 160 * HOUR, (host, of) => reboot(host, of.hit(0.5))],
    [
      "spawner",
      24 * HOUR,
      (host) => {
        trace(`the spawner of ${nameOf(host)} dies`);
        host.machine.killResident();
      },
    ],
    ["stuck_spawner", 24 * HOUR, (host, of) => host.machine.stickResident(of.int(1_000, 60_000))],
    [
      "stall",
      30 * HOUR,
      (host, of) => {
        const ms = of.hit(0.5) ? of.int(1_000, 20_000) : of.int(MINUTE, 3 * HOUR);
        trace(`${nameOf(host)} does nothing for ${ms} ms`);
        disturb(host, time.now + ms);
        host.daemon?.context.stall(ms);
      },
    ],
    ["stop", 40 * HOUR, (host) => stopDaemon(host)],
    [
      "away",
      40 * HOUR,
      (_, of) => {
        awayUntil = time.now + of.int(500, 20 * MINUTE);
        trace(`the store is away for ${awayUntil - time.now} ms`);
        for (const host of hosts) disturb(host, awayUntil);
      },
    ],
    [
      "full_store",
      60 * HOUR,
      (_, of) => {
        if (hosts.length > 1) return;
        fullUntil = time.now + of.int(500, HOUR);
        trace(`the disk of the store is full for ${fullUntil - time.now} ms`);
        for (const host of hosts) disturb(host, fullUntil);
      },
    ],
    [
      "full_disk",
      80 * HOUR,
      (host, of) => {
        const ms = of.int(MINUTE, 3 * HOUR);
        trace(`the disk of ${nameOf(host)} is full for ${ms} ms`);
        host.machine.freeBytes = 1_000;
        disturb(host, time.now + ms);
        time.at(time.now + ms, () => {
          host.machine.freeBytes = 100 * simLimits.minFreeBytes;
          disturb(host, time.now);
        });
      },
    ],
  ];

  if (server !== null)
    mishaps.push(
      [
        "server",
        80 * HOUR,
        () => {
          trace("the server crashes");
          for (const host of hosts) disturb(host, time.now);
          server.crash();
        },
      ],
      ["deaf_server", 40 * HOUR, () => server.deafen()],
    );

  /** Happens again and again after pauses of about that length. */
  function haunt(everyMs: number, happen: () => void, from: Chance): void {
    const again = () => {
      if (quiet) return;
      happen();
      time.at(time.now + from.int(everyMs / 5, everyMs * 1.8), again);
    };
    time.at(time.now + from.int(0, everyMs * 1.5), again);
  }

  // --- what people do ------------------------------------------------------------------------------------------------

  const loopIds: string[] = [];
  const habitOfLoop = new Map<string, string>();
  let names = 0;
  let quiet = false;

  function somePolicy(habit: string): LoopPolicy {
    return loopPolicy.parse({
      attempts: people.int(1, 3),
      backoffMs: people.int(1_000, 5 * MINUTE),
      timeoutMs: habit === "hang" || people.hit(0.3) ? people.int(10 * MINUTE, 4 * HOUR) : null,
      idleTimeoutMs: people.hit(0.3) ? people.int(5 * MINUTE, HOUR) : null,
      graceMs: people.pick([0, 1_000, 10_000]),
      priority: people.int(-5, 5),
      onLost: people.pick(["auto", "retry", "fail"] as const),
      catchUp: people.pick(["latest", "all", "none"] as const),
      catchUpLimit: people.int(1, 20),
      // Runs of hours beside each other would make a queue of weeks, and nothing else.
      overlap: people.pick(
        habit === "hang" || habit === "long"
          ? (["skip", "cancel"] as const)
          : (["skip", "queue", "allow", "cancel"] as const),
      ),
      queueLimit: people.int(1, 5),
      jitterMs: people.hit(0.3) ? people.int(1_000, 10 * MINUTE) : 0,
      breaker: people.pick([0, 5, 20]),
      onFinish: people.hit(0.1) ? "true" : null,
      onFailure: people.hit(0.1) ? "true" : null,
      expiresAfterRuns: people.hit(0.05) ? people.int(5, 50) : null,
    });
  }

  function someSchedule(): Schedule {
    const now = storeNow();
    const zone = people.pick(Object.keys(ZONES));
    const kind = people.next();
    if (kind < 0.5) return { kind: "interval", everyMs: people.int(60, 1_200) * MINUTE, anchorAt: now };
    if (kind < 0.85)
      return {
        kind: "cron",
        zone,
        expression: people.pick([
          "0 */6 * * *",
          "30 4 * * *",
          "15 9-17 * * 1-5",
          "0 0,12 * * *",
          "5 3 1,15 * *",
          "10/20 6 * * *",
          // At a clock change some of these are skipped or come twice, somewhere.
          "30 2 * * *",
          "5,45 1-3 * * *",
          "*/30 0-3 * * *",
        ]),
      };
    if (kind < 0.95) return { kind: "dynamic", firstAt: now + MINUTE };
    return { kind: "once", at: now + people.int(-HOUR, 48 * HOUR) };
  }

  /** A wish goes to the store directly, as one of the command line does; one that is refused is a wish, not a fault. */
  async function wish<T>(what: string, work: (store: Store) => Promise<T>): Promise<T | null> {
    try {
      return await work(outside);
    } catch (error) {
      if (error instanceof AppError && error.kind !== "internal") return null;
      fail({ invariant: "bug", what: `${what}: ${(error as Error).stack}` });
      return null;
    }
  }

  const outside = storeThrough((entry, input) => callStore(entry, input, null));

  async function addLoop(): Promise<void> {
    const habit = people.pick(HABITS);
    const host = people.pick(hosts);
    // As the command line does: what nothing names goes after a day.
    if (habit === "flow") await wish("definitions.put", keepFlows);
    const made = await wish("loops.add", (store) =>
      store.loops.add({
        draft: {
          name: `loop ${names++}`,
          schedule: someSchedule(),
          target: targetOf(habit, people),
          policy: somePolicy(habit),
          hostPin: host.id,
          managedBy: null,
        },
        limits: simLimits,
      }),
    );
    if (made === null) return;
    loopIds.push(made.id);
    habitOfLoop.set(made.id, habit);
  }

  async function someRun(live: boolean): Promise<string | null> {
    const page = await wish("runs.list", (store) =>
      store.runs.list({ limit: 20, cursor: null, loopId: null, status: null, label: null, since: null }),
    );
    const found = (page?.items ?? []).filter((run) => (run.finishedAt === null) === live);
    return found.length === 0 ? null : people.pick(found).id;
  }

  async function act(): Promise<void> {
    if (quiet) return;
    const loopId = loopIds.length === 0 ? null : people.pick(loopIds);
    const what = people.next();
    if (what < 0.2) {
      const habit = people.pick(HABITS);
      const target = targetOf(habit, people);
      if (habit === "flow") await wish("definitions.put", keepFlows);
      await wish("runs.add", (store) =>
        store.runs.add(
          runDraft(target, {
            policy: runPolicy.parse({ attempts: people.int(1, 3), timeoutMs: 4 * HOUR, backoffMs: 1_000 }),
            idempotencyKey: people.hit(0.3) ? `key ${people.int(1, 50)}` : null,
            hostPin: people.pick(hosts).id,
            limits: simLimits,
          }),
        ),
      );
      return;
    }
    if (what < 0.3) {
      const runId = await someRun(true);
      if (runId !== null)
        await wish("runs.cancel", (store) =>
          store.runs.cancel({ runId, by: "person", reason: "not needed", limits: simLimits }),
        );
      return;
    }
    if (what < 0.35) {
      const runId = await someRun(false);
      if (runId !== null)
        await wish("runs.retry", (store) => store.runs.retry({ runId, by: "person", limits: simLimits }));
      return;
    }
    if (what < 0.4 && habitOfLoop.size > 0 && [...habitOfLoop.values()].includes("agent")) return minding();
    if (what < 0.42 || loopId === null) return addLoop();
    if (what < 0.5) {
      await wish("loops.runNow", (store) =>
        store.loops.runNow({ loopId, by: "person", parentRunId: null, limits: simLimits }),
      );
    } else if (what < 0.65) {
      const habit = habitOfLoop.get(loopId) ?? "quick";
      const change = {
        ...(people.hit(0.6) ? { schedule: someSchedule() } : {}),
        ...(people.hit(0.5) ? { policy: somePolicy(habit) } : {}),
      };
      await wish("loops.edit", (store) => store.loops.edit({ loopId, change, limits: simLimits }));
    } else if (what < 0.75) {
      await wish("loops.pause", (store) => store.loops.pause({ loopId, reason: null, limits: simLimits }));
    } else if (what < 0.92) {
      await wish("loops.resume", (store) => store.loops.resume({ loopId, limits: simLimits }));
    } else if (what < 0.95) {
      await wish("loops.archive", (store) => store.loops.archive({ loopId, limits: simLimits }));
    } else if (what < 0.98) {
      await wish("loops.unarchive", (store) => store.loops.unarchive({ loopId, limits: simLimits }));
    } else {
      const gone = await wish("loops.remove", async (store) => {
        await store.loops.remove({ loopId });
        return true;
      });
      if (gone) loopIds.splice(loopIds.indexOf(loopId), 1);
    }
  }

  /** Somebody looks after the account. */
  async function minding(): Promise<void> {
    const accountId = ACCOUNT;
    const what = people.next();
    if (what < 0.3) {
      const untilAt = people.hit(0.7) ? storeNow() + people.int(MINUTE, 5 * HOUR) : null;
      await wish("accounts.hold", (store) => store.accounts.hold({ accountId, untilAt, reason: "not now" }));
    } else if (what < 0.4) {
      await wish("accounts.enable", (store) => store.accounts.enable({ accountId, enabled: false }));
    } else await freeAccount();
  }

  async function freeAccount(): Promise<void> {
    const accountId = ACCOUNT;
    await wish("accounts.enable", (store) => store.accounts.enable({ accountId, enabled: true }));
    await wish("accounts.release", (store) => store.accounts.release({ accountId }));
  }

  async function retireLoops(): Promise<void> {
    for (const loopId of loopIds) {
      await wish("loops.resume", (store) => store.loops.resume({ loopId, limits: simLimits }));
      await wish("loops.unarchive", (store) => store.loops.unarchive({ loopId, limits: simLimits }));
      await wish("loops.resume", (store) => store.loops.resume({ loopId, limits: simLimits }));
      await wish("loops.edit", (store) =>
        store.loops.edit({
          loopId,
          change: { schedule: { kind: "once", at: storeNow() + 365 * 24 * HOUR } },
          limits: simLimits,
        }),
      );
    }
  }

  // --- running it ----------------------------------------------------------------------------------------------------

  // Where notifications are lost, the sweep finds what they would have told.
  const REST_MS = (options.hosts > 1 ? SWEEP_MS : simLimits.longestSleepMs) + 5 * MINUTE;

  function lookAround(): void {
    for (const host of hosts) {
      const short = host.machine.freeBytes < simLimits.minFreeBytes;
      if (host.time.suspended || short || host.daemon?.context.stalled === true) disturb(host, time.now);
      const undisturbed = time.now - Math.max(host.disturbedAt, host.time.wokeAt);
      const idle = host.daemon?.engine == null || host.daemon.stopping;
      if (idle || undisturbed < REST_MS || time.now < awayUntil + REST_MS) checks.onUnrest(host.id);
      else void store.look(checks.onRest(host.id, storeNow(), REST_MS - MINUTE));
    }
    time.at(time.now + 30 * MINUTE, lookAround);
  }

  /** What is asked for outside of events, to its end. */
  async function carry<T>(work: Promise<T>): Promise<T> {
    let done = false;
    const ended = work.finally(() => {
      done = true;
    });
    ended.catch(() => undefined);
    for (await time.settle(); !done; await time.settle()) await time.step(time.now + MINUTE);
    return ended;
  }

  async function runUntil(ms: number): Promise<void> {
    await time.settle();
    while (broken === null && (await time.step(ms)));
  }

  /** On a server, where time is dear, no longer than is needed. */
  async function runFor(ms: number, enough: () => boolean): Promise<void> {
    if (server === null) return runUntil(time.now + ms);
    const endsAt = time.now + ms;
    do await runUntil(time.now + 10 * MINUTE);
    while (broken === null && time.now < endsAt && !enough());
    await runUntil(time.now + 10 * MINUTE);
  }

  return {
    time,
    get claims() {
      return checks.claims();
    },
    tally: () => store.look(checks.tally()),
    get broken() {
      return broken;
    },
    hosts,
    get crashes() {
      return crashes;
    },
    struck: faults.struck,
    runUntil,
    async begin() {
      for (const host of hosts) startDaemon(host);
      await runUntil(2_000);
      await carry(
        wish("prompts.put", (store) => store.prompts.put({ digest: PROMPT_DIGEST, content: "RG8gaXQu", bytes: 6 })),
      );
      for (let i = 0; i < options.loops; i++) await carry(addLoop());
      haunt(server === null ? 5 * HOUR : 15 * MINUTE, () => void act(), people);
      for (const host of hosts)
        for (const [kind, everyMs, happen] of mishaps) {
          const of = chance.fork(`${kind} of ${nameOf(host)}`);
          haunt(server === null ? everyMs : everyMs / 8, () => faults.strikes(kind, 1) && happen(host, of), of);
        }
      time.at(HOUR, lookAround);
      if (server !== null) haunt(10 * MINUTE, () => void server.readFeed(), serverChance);
    },
    async drain() {
      quiet = true;
      faults.end();
      fullUntil = 0;
      for (const host of hosts) host.machine.freeBytes = 100 * simLimits.minFreeBytes;
      // What is down comes up by itself; whatever sleeps wakes.
      const isUp = ({ daemon, time: own }: Host) => daemon?.engine != null && !daemon.context.stalled && !own.suspended;
      await runFor(12 * HOUR, () => hosts.every(isUp));
      await carry(freeAccount());
      await carry(retireLoops());
      // As long as something comes to its end, more may: a long queue of long runs takes its time.
      for (
        let before = -1, left = checks.unfinished();
        broken === null && left > 0 && left !== before;
        left = checks.unfinished()
      ) {
        before = left;
        await carry(freeAccount());
        // A breaker may pause a loop while its queue ends in failures: somebody mends it.
        for (const loopId of loopIds)
          await carry(wish("loops.resume", (store) => store.loops.resume({ loopId, limits: simLimits })));
        await runFor(2 * 24 * HOUR, () => checks.unfinished() === 0);
      }
      if (broken === null) await store.look(checks.onDrained());
      if (broken === null && server !== null) await carry(server.readFeed());
      for (const host of hosts)
        if (broken === null && host.machine.liveProcesses() > 0)
          fail({ invariant: "I11", what: `${nameOf(host)} still has ${host.machine.liveAttempts().join(", ")}` });
    },
    async close() {
      if (server !== null) trace(`the server has seen ${brief(server.counts)}`);
      await store.close();
    },
  };
}

/** What a damaged disk says: nothing that a program can do anything about but try again. */
const BAD_DISK = "EIO: i/o error, read";
const badDisk = () => Object.assign(new Error(BAD_DISK), { code: "EIO" });
const ioError = () => storeUnreachable("the store", "the disk answered with an error");
function shuffle<T>(rows: readonly T[], chance: Chance): readonly T[] {
  const left = [...rows];
  return rows.map(() => left.splice(chance.int(0, left.length - 1), 1)[0] as T);
}

const unreachableStore = () => new AppError("unreachable", "store_unreachable", "the store does not answer");

const brief = (value: unknown): string => {
  const text =
    JSON.stringify(value, (key, inner: unknown) => (key === "limits" || key === "run" ? undefined : inner)) ?? "";
  return text.length > 300 ? `${text.slice(0, 300)}...` : text;
};

function stamp(ms: number): string {
  const day = Math.floor(ms / (24 * HOUR));
  return `${day}d ${new Date(ms % (24 * HOUR)).toISOString().slice(11, 23)}`;
}
