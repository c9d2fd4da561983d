/** A simulated host: its folders and processes as state, with the shim's steps and the daemon's in any order. */
import type { AgentReading, AgentVerdict } from "../../src/core/agent.ts";
import { AppError } from "../../src/core/errors.ts";
import type { Agents, EndReport, Files, Judgement, Launch, Spawner, Worktrees } from "../../src/core/ports.ts";
import type { Chance } from "./chance.ts";
import { type Context, type HostTime, never } from "./time.ts";

/** What a process will do, decided when it is prepared. */
export interface Plan {
  readonly durationMs: number;
  readonly exit: number;
  readonly ignoresTerm: boolean;
  /** Children that outlive the command. */
  readonly leaves: number;
  readonly fault?: "nocwd" | "nocmd" | "noexec";
  /** It writes a line that often until then. */
  readonly printEveryMs: number;
  readonly printsForMs: number;
  readonly shimDies: "never" | "before_ticket" | "after_ticket" | "while_running";
  readonly output: string | null;
  readonly unmet: string | null;
  readonly agent?: AgentPlan;
}

/** What a simulated agent prints, as its adapter would read it. */
export interface AgentPlan {
  /** What is known of it after it has run that long; what is not said is nothing. */
  readonly says: (ranMs: number) => Partial<AgentReading>;
  /** What its end adds up to; what is not said is success. @param ranMs how long it ran */
  readonly concludes?: (exit: number | null, ranMs: number) => Partial<AgentVerdict>;
}

const silent: AgentReading = { sessionId: null, progress: 0, answered: false, closed: false, trouble: null };
const well: AgentVerdict = {
  ok: true,
  class: null,
  message: null,
  text: "done",
  sessionId: null,
  usage: null,
  resetAt: null,
  resetSource: null,
  httpStatus: null,
  refusedTools: [],
};

/** A world of commands in their own folders: nobody asks for an agent or a tree there. */
const absent = (): never => {
  throw new Error("this world has commands only");
};
export const commandsOnly: { readonly agents: Agents; readonly worktrees: Worktrees } = {
  agents: { traits: absent, read: absent, conclude: absent },
  worktrees: {
    place: absent,
    make: absent,
    enter: absent,
    look: absent,
    watch: absent,
    escaped: absent,
    remove: absent,
  },
};

/** What a command is told to do, or an agent. */
export const habitOf = ({ target }: Launch): string =>
  target.kind === "command" ? (target.argv[1] ?? "") : target.prompt.head;

interface Folder {
  readonly name: string;
  readonly attemptId: string;
  readonly plan: Plan;
  readonly boot: number;
  id: boolean;
  ticket: "go" | "void" | null;
  commandSeen: boolean;
  exit: number | null;
  fault: "nocwd" | "nocmd" | "noexec" | null;
  shim: "none" | "alive" | "dead";
  command: "none" | "alive" | "dead";
  children: number;
  startedAt: number;
  startedAwake: number;
  endedAwake: number | null;
  endedAt: number;
}

export interface MachineOptions {
  readonly time: HostTime;
  readonly chance: Chance;
  readonly planOf: (launch: Launch, chance: Chance) => Plan;
  /** The moment at which a command begins to do harm. */
  readonly onStart: (attemptId: string) => void;
  readonly onEnd: (attemptId: string) => void;
  /** Plants the fault that a shim does not look whether it has the ticket. */
  readonly skipTicket: boolean;
  /** Whether a bell is lost. */
  readonly losesBell: () => boolean;
}

export interface Machine {
  spawnerFor(context: Context): Spawner;
  filesFor(context: Context): Files;
  agentsFor(context: Context): Agents;
  /** The resident spawner dies: what is in its pipe is gone. */
  killResident(): void;
  /** It does nothing for a while, then goes on. */
  stickResident(ms: number): void;
  /** Everything that runs is gone; with `powerCut` some of what was written last, too. */
  reboot(powerCut: boolean): void;
  freeBytes: number;
  liveProcesses(): number;
  liveAttempts(): readonly string[];
}

const COMMAND_PID = 1_000;
const GIB = 1_073_741_824;

export function createMachine(options: MachineOptions): Machine {
  const { time, chance } = options;
  const folders = new Map<string, Folder>();
  let boot = 1;
  let resident = 0;
  let stuckUntil = 0;
  let pids = COMMAND_PID;
  /** Every daemon that lives hears the bells, also one that has been replaced and does not know it. */
  let ears: { readonly context: Context; bell: (folder: string) => void; replaced: () => void }[] = [];
  const earOf = (context: Context) => {
    ears = ears.filter((ear) => ear.context.alive);
    const there = ears.find((ear) => ear.context === context);
    if (there !== undefined) return there;
    const fresh = { context, bell: (_: string) => {}, replaced: () => {} };
    ears.push(fresh);
    return fresh;
  };
  const onBell = (folder: string) => {
    for (const ear of ears) ear.context.deliver(() => ear.bell(folder));
  };
  const onReplaced = () => {
    for (const ear of ears) ear.context.deliver(ear.replaced);
  };

  const living = (folder: Folder) =>
    (folder.command === "alive" ? 1 : 0) + folder.children + (folder.shim === "alive" ? 1 : 0);

  function ring(folder: Folder): void {
    if (options.losesBell()) return;
    onBell(folder.name);
    if (chance.hit(0.02)) onBell(folder.name);
  }

  /** The shim's steps, each after a little while. */
  function beginShim(folder: Folder): void {
    if (folders.get(folder.name) !== folder || folder.id) return;
    folder.id = true;
    folder.shim = "alive";
    if (folder.plan.shimDies === "before_ticket") {
      folder.shim = "dead";
      return;
    }
    time.after(chance.int(1, 8), () => takeTicket(folder));
  }

  function takeTicket(folder: Folder): void {
    if (folder.ticket !== null && !options.skipTicket) {
      folder.shim = "dead";
      return;
    }
    folder.ticket = "go";
    if (folder.plan.shimDies === "after_ticket") {
      folder.shim = "dead";
      return;
    }
    time.after(1, () => execute(folder));
  }

  function execute(folder: Folder): void {
    folder.startedAt = time.now();
    folder.startedAwake = time.awake();
    if (folder.plan.fault !== undefined) {
      folder.fault = folder.plan.fault;
      return record(folder, 127);
    }
    folder.commandSeen = true;
    folder.command = "alive";
    options.onStart(folder.attemptId);
    if (folder.plan.shimDies === "while_running")
      time.after(Math.min(2_000, folder.plan.durationMs / 2), () => {
        if (folder.command === "alive") folder.shim = "dead";
      });
    time.after(folder.plan.durationMs, () => {
      if (folder.command !== "alive") return;
      folder.children += folder.plan.leaves;
      endCommand(folder, folder.plan.exit);
    });
  }

  function endCommand(folder: Folder, exit: number): void {
    if (folder.command !== "alive") return;
    folder.command = "dead";
    folder.endedAwake = time.awake();
    folder.endedAt = time.now();
    if (folder.children === 0) options.onEnd(folder.attemptId);
    time.after(1, () => record(folder, exit));
  }

  function record(folder: Folder, exit: number): void {
    if (folder.shim !== "alive") return;
    folder.exit = exit;
    folder.endedAt = time.now();
    folder.shim = "dead";
    ring(folder);
  }

  function killChildren(folder: Folder): void {
    if (folder.children === 0) return;
    folder.children = 0;
    if (folder.command !== "alive") options.onEnd(folder.attemptId);
  }

  function judge(name: string, bootId: string, plant: boolean): Judgement {
    const folder = folders.get(name);
    if (bootId !== `boot-${boot}`) {
      if (folder !== undefined && folder.exit !== null) return ended(folder, folder.exit);
      return { kind: "lost", why: "host_restarted" };
    }
    if (folder === undefined) return { kind: "lost", why: "folder_vanished" };
    if (folder.ticket === null) {
      if (!plant) return { kind: "asked" };
      folder.ticket = "void";
    }
    if (folder.ticket === "void") return { kind: "never_started", why: "no ticket was taken" };
    if (folder.exit !== null) return ended(folder, folder.exit);
    if (folder.shim === "alive")
      return { kind: "live", pid: ++pids, pidStarted: String(folder.startedAwake), started: folder.commandSeen };
    if (folder.command === "alive") return { kind: "orphan", pid: ++pids, pidStarted: String(folder.startedAwake) };
    return { kind: "lost", why: "exit_unknown" };
  }

  const ended = (folder: Folder, exit: number): Judgement => ({
    kind: "ended",
    exit,
    ...(folder.fault === null ? {} : { fault: folder.fault }),
    startedAt: folder.startedAt,
    endedAt: folder.endedAt,
    durationMs: folder.endedAwake === null ? null : folder.endedAwake - folder.startedAwake,
  });

  /** Waits in the daemon's process; the host goes on without it. */
  const pause = (context: Context, ms: number) =>
    new Promise<void>((resolve) => time.after(ms, () => context.deliver(resolve)));

  async function end(context: Context, name: string, graceMs: number, command: boolean): Promise<EndReport> {
    const folder = folders.get(name);
    const found = folder === undefined ? 0 : folder.children + (command && folder.command === "alive" ? 1 : 0);
    if (folder === undefined || found === 0) return { killed: 0, left: 0, proof: "proved_empty" };
    if (graceMs > 0) {
      if (!folder.plan.ignoresTerm) {
        time.after(chance.int(1, 20), () => {
          if (command) endCommand(folder, 143);
          killChildren(folder);
        });
        await pause(context, 25);
      } else await pause(context, graceMs);
    }
    if (command && folder.command === "alive") endCommand(folder, 137);
    killChildren(folder);
    await pause(context, 3);
    return { killed: found, left: 0, proof: "proved_empty" };
  }

  const ranMs = (folder: Folder): number => (folder.endedAwake ?? time.awake()) - folder.startedAwake;

  function bytesOf(folder: Folder): number {
    if (!folder.commandSeen) return 0;
    const printedMs = Math.min(ranMs(folder), folder.plan.printsForMs);
    return folder.plan.printEveryMs === 0 ? 0 : 20 * Math.floor(printedMs / folder.plan.printEveryMs);
  }

  const machine: Machine = {
    freeBytes: 100 * GIB,
    spawnerFor: (context) => ({
      bootId: `boot-${boot}`,
      async prepare(launch) {
        const attemptId = launch.variables["DROVER_ATTEMPT_ID"] ?? "";
        if (folders.has(launch.folder)) throw new AppError("conflict", "folder_exists", "a folder is never used twice");
        folders.set(launch.folder, {
          name: launch.folder,
          attemptId,
          plan: options.planOf(launch, chance.fork(attemptId)),
          boot,
          id: false,
          ticket: null,
          commandSeen: false,
          exit: null,
          fault: null,
          shim: "none",
          command: "none",
          children: 0,
          startedAt: 0,
          startedAwake: 0,
          endedAwake: null,
          endedAt: 0,
        });
      },
      async ask(name) {
        const folder = folders.get(name);
        const of = resident;
        if (folder === undefined) return;
        time.after(Math.max(chance.int(1, 5), stuckUntil - time.awake()), () => {
          if (of === resident) beginShim(folder);
        });
      },
      judge: async ({ folder, bootId, plant }) => judge(folder, bootId, plant),
      end: ({ folder, graceMs }) => end(context, folder, graceMs, true),
      sweep: ({ folder, graceMs }) => end(context, folder, graceMs, false),
      measure(name) {
        const folder = folders.get(name);
        const stdoutBytes = folder === undefined ? 0 : bytesOf(folder);
        return { stdoutBytes, stderrBytes: 0, mark: stdoutBytes };
      },
      trim: async () => undefined,
      onBell(listener) {
        earOf(context).bell = listener;
      },
      onReplaced(listener) {
        earOf(context).replaced = listener;
      },
      close: async () => undefined,
    }),
    filesFor(context) {
      return {
        tail: async () => ({ text: "", droppedBytes: 0 }),
        output: async (name) => folders.get(name)?.plan.output ?? null,
        unmet: async (name) => folders.get(name)?.plan.unmet ?? null,
        freeBytes: async () => (context.alive ? machine.freeBytes : never()),
        folders: async () => [...folders.keys()],
        async remove(name) {
          folders.delete(name);
        },
      };
    },
    agentsFor: () => ({
      traits: () => ({ resume: true, fork: true, presetSession: true, serialStarts: false }),
      async read(name) {
        const folder = folders.get(name);
        return { ...silent, ...folder?.plan.agent?.says(ranMs(folder)) };
      },
      async conclude(name, _target, exit) {
        const folder = folders.get(name);
        return { ...well, ...folder?.plan.agent?.concludes?.(exit, ranMs(folder)) };
      },
    }),
    killResident() {
      resident++;
      stuckUntil = 0;
      time.after(4, () => onReplaced());
    },
    stickResident(ms) {
      stuckUntil = time.awake() + ms;
    },
    reboot(powerCut) {
      boot++;
      resident++;
      stuckUntil = 0;
      for (const folder of folders.values()) {
        const was = living(folder);
        folder.shim = folder.shim === "none" ? "none" : "dead";
        folder.command = folder.command === "none" ? "none" : "dead";
        folder.children = 0;
        folder.endedAwake ??= folder.startedAwake;
        if (was > 0 && folder.commandSeen) options.onEnd(folder.attemptId);
        if (powerCut && was > 0 && chance.hit(0.5)) {
          folder.ticket = null;
          folder.exit = null;
        }
      }
      time.reboot();
    },
    liveProcesses: () => [...folders.values()].reduce((sum, folder) => sum + living(folder), 0),
    liveAttempts: () => [...folders.values()].filter((folder) => living(folder) > 0).map((folder) => folder.attemptId),
  };
  return machine;
}
