/** The engine of this host: its ports made of the store and of what executes here. */
import type { CommandWorld } from "../cli/cli.ts";
import type { Engine } from "../engine/engine.ts";
import type { HostWorktrees } from "../execution/worktrees/open-worktrees.ts";
import type { DaemonLog } from "../ops/daemon/daemon-log.ts";
import type { Health } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import type { Settings } from "../ops/config/settings.ts";
import type { StoreHandle } from "../store/driver.ts";
import type { operations } from "../store/operations.ts";

/** With other hosts on the store everything is looked at that often, in case a notification was lost. */
const SWEEP_MS = 30_000;

/** What the engine is made of. */
export interface EngineParts {
  readonly world: CommandWorld;
  readonly settings: Settings;
  readonly mode: Health["mode"];
  readonly log: DaemonLog;
  readonly handle: StoreHandle<typeof operations>;
  readonly host: { readonly hostId: string; readonly name: string; readonly machineId: string };
  /** The key that tokens of runs are signed with. */
  readonly key: Uint8Array;
  readonly worktrees: () => Promise<HostWorktrees>;
  /** Takes what is to be closed after the engine. */
  readonly closers: (() => void | Promise<void>)[];
}

/** Joins as this host, recovers what it had, and starts. Errors: those of the store. */
export async function openEngine(parts: EngineParts): Promise<Engine> {
  const { world, settings, mode, log, handle, host, key, worktrees, closers } = parts;
  const { places } = world;
  const [{ startEngine }, { signRunToken }, { randomBytes }, execution] = await Promise.all([
    import("../engine/engine.ts"),
    import("../ops/runs/run-token.ts"),
    import("node:crypto"),
    Promise.all([
      import("../execution/spawner.ts"),
      import("../execution/files.ts"),
      import("../execution/notifier.ts"),
      import("../execution/clock.ts"),
      import("../execution/agents/open-agents.ts"),
    ]),
  ]);
  const [{ openSpawner }, { openFiles }, { openNotifier }, { systemClock }, { openAgents }] = execution;
  const spawner = openSpawner({
    runsFolder: places.runs,
    cgroups: true,
    agentProbeMs: settings.limits.agentProbeMs,
    log: (message) => log.write("warn", "spawner", { message }),
  });
  closers.push(() => spawner.close());
  const own = ownPlaces(world.env, places, settings);
  const strikes = world.env["DROVER_TEST_POINTS"];

  return startEngine(
    {
      clock: systemClock(),
      random: { bytes: (count) => randomBytes(count) },
      store: handle.store,
      // A process of a run that calls drover means the installation that started it.
      spawner: {
        ...spawner,
        prepare: (launch) => spawner.prepare({ ...launch, variables: { ...launch.variables, ...own } }),
      },
      files: openFiles({ runsFolder: places.runs, maxOutputBytes: settings.limits.outputBytes }),
      notifier: openNotifier(),
      agents: openAgents({
        runsFolder: places.runs,
        limits: settings.limits,
        clock: world.clock,
        log: (message) => log.write("warn", "agents", { message }),
      }),
      worktrees: await worktrees(),
      startHeartbeat: ({ onAnswer, everyMs, ...input }) =>
        handle.startHeartbeat({
          operation: "hosts.renew",
          input,
          everyMs,
          onAnswer: (answer) => onAnswer(answer as Parameters<typeof onAnswer>[0]),
          onError: (error) => log.write("warn", "renewal_failed", { message: error.message }),
        }),
      signToken: (run) => signRunToken(key, run),
      log: log.write,
      ...(strikes === undefined ? {} : { point: (await import("./points.ts")).strikesOf(strikes) }),
    },
    {
      host: {
        ...host,
        bootId: spawner.bootId,
        version: world.build.version,
        leaseMs: settings.limits.leaseMs,
        commandCap: settings.limits.commandCap,
        agentCap: settings.limits.agentCap,
      },
      limits: settings.limits,
      socket: places.socket,
      untilIdle: mode === "until_idle",
      sweepMs: handle.kind === "postgres" ? SWEEP_MS : null,
    },
  );
}

/** What says where this installation is, where that is not its usual place. An address with a password is told to nobody. */
function ownPlaces(env: CommandWorld["env"], places: Places, settings: Settings): Record<string, string> {
  const { store } = settings;
  const told = env["DROVER_STORE"] === store && !/^\w+:\/\/[^/@]*:[^/@]*@/.test(store);
  return { ...(places.home === null ? {} : { DROVER_HOME: places.home }), ...(told ? { DROVER_STORE: store } : {}) };
}
