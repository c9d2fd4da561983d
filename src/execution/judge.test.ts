import { describe, expect, test } from "vitest";
import type { Judgement } from "../core/ports.ts";
import type { RunRecord } from "./attempt-folder.ts";
import { parseRun } from "./attempt-folder.ts";
import type { Evidence, Progress, Seen, Verdict } from "./judge.ts";
import { judge, knownDead } from "./judge.ts";

const SHIM: Seen = { pid: 40, started: "7" };
const COMMAND: Seen = { pid: 41, started: "8" };
const stat = (pid: number, started: number) => `${pid} (sh) S 1 40 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 ${started} 0 0`;

const RUNS = {
  absent: null,
  empty: "",
  torn: "go",
  void: "void\n",
  go: "go\n",
  cmd: `go\ncmd ${stat(41, 8)}\n`,
  nocwd: "go\nnocwd\n",
  tornExit: `go\ncmd ${stat(41, 8)}\nexit 3 12.5`,
  exit: `go\ncmd ${stat(41, 8)}\nexit 3 12.50\n`,
  exitNocmd: "go\nnocmd\nexit 127 12.50\n",
} as const;

type Planted = Progress["planted"];

interface Case {
  readonly sameBoot: boolean;
  readonly folderThere: boolean;
  readonly run: keyof typeof RUNS;
  readonly shimAlive: boolean;
  readonly commandAlive: boolean;
  readonly marked: boolean;
  readonly idTorn: boolean;
  readonly mayPlant: boolean;
  readonly planted: Planted;
  readonly readAgain: boolean;
  readonly looked: boolean;
}

const flags = [false, true];
const all: Case[] = [];
for (const sameBoot of flags)
  for (const folderThere of flags)
    for (const run of Object.keys(RUNS) as (keyof typeof RUNS)[])
      for (const shimAlive of flags)
        for (const commandAlive of flags)
          for (const marked of flags)
            for (const idTorn of flags)
              for (const mayPlant of flags)
                for (const planted of [null, "planted", "refused", "gone"] as const)
                  for (const readAgain of flags)
                    for (const looked of flags)
                      all.push({
                        sameBoot,
                        folderThere,
                        run,
                        shimAlive,
                        commandAlive,
                        marked,
                        idTorn,
                        mayPlant,
                        planted,
                        readAgain,
                        looked,
                      });

function ask(of: Case): Verdict {
  const text = RUNS[of.run];
  const run = text === null ? null : parseRun(text);
  const evidence: Evidence = {
    sameBoot: of.sameBoot,
    folderThere: of.folderThere,
    run,
    shim: of.shimAlive ? SHIM : null,
    id: of.idTorn ? "torn" : "whole",
    command: of.commandAlive && run?.command != null ? COMMAND : null,
    marked: of.marked ? COMMAND : null,
    startedTicks: run?.command == null ? null : 8,
    startedAt: 1000,
    endedAt: 2000,
  };
  return judge(evidence, of);
}

const kindOf = (verdict: Verdict): string => ("next" in verdict ? verdict.next : verdict.judgement.kind);

/** The table of execution-notes, section 4, as a list of (row, condition, allowed answers); first match wins. */
const hasExit = (of: Case) => of.run === "exit" || of.run === "exitNocmd";
const rows: readonly (readonly [string, (of: Case) => boolean, (of: Case) => string])[] = [
  ["1", (of) => !of.sameBoot && hasExit(of), () => "ended"],
  ["2", (of) => !of.sameBoot, () => "lost"],
  ["3 look", (of) => (!of.folderThere || of.planted === "gone") && !of.looked, () => "look"],
  ["3", (of) => !of.folderThere || of.planted === "gone", (of) => (of.shimAlive || of.marked ? "live" : "lost")],
  ["asked", (of) => of.run === "absent" && !of.mayPlant, () => "asked"],
  ["run was removed", (of) => of.run === "absent" && of.planted === "refused", () => "lost"],
  ["4, 5", (of) => of.run === "absent", () => "plant"],
  ["6", (of) => of.run === "void", () => "never_started"],
  ["7", hasExit, () => "ended"],
  ["8", (of) => of.shimAlive, () => "live"],
  ["9", (of) => !of.readAgain, () => "read_again"],
  ["10", (of) => of.run === "empty" || of.run === "torn", () => "never_started"],
  ["11", (of) => of.commandAlive && (of.run === "cmd" || of.run === "tornExit"), () => "orphan"],
  ["12", () => true, () => "lost"],
];

describe("judge", () => {
  test("every combination of files, processes and progress is judged as the recovery table says", () => {
    const used = new Set<string>();
    for (const of of all) {
      const row = rows.find(([, matches]) => matches(of));
      if (row === undefined) throw new Error("no row matches");
      used.add(row[0]);
      expect(kindOf(ask(of)), `row ${row[0]}: ${JSON.stringify(of)}`).toBe(row[2](of));
    }
    expect([...used]).toHaveLength(rows.length);
  });

  test("never_started is said only with a tombstone, or when the shim died before its ticket, and never in another boot", () => {
    for (const of of all) {
      if (kindOf(ask(of)) !== "never_started") continue;
      expect(of.sameBoot).toBe(true);
      expect(["void", "empty", "torn"]).toContain(of.run);
    }
  });

  const base: Case = {
    sameBoot: true,
    folderThere: true,
    run: "absent",
    shimAlive: false,
    commandAlive: false,
    marked: false,
    idTorn: false,
    mayPlant: true,
    planted: null,
    readAgain: true,
    looked: true,
  };
  const judged = (over: Partial<Case>): Judgement => {
    const verdict = ask({ ...base, ...over });
    if ("next" in verdict) throw new Error(`not judged: ${verdict.next}`);
    return verdict.judgement;
  };

  test("an end carries status, fault, instants and a duration free of clock steps", () => {
    expect(judged({ run: "exit" })).toEqual({
      kind: "ended",
      exit: 3,
      startedAt: 1000,
      endedAt: 2000,
      durationMs: 12_420,
    });
    expect(judged({ run: "exitNocmd" })).toEqual({
      kind: "ended",
      exit: 127,
      fault: "nocmd",
      startedAt: 1000,
      endedAt: 2000,
      durationMs: null,
    });
  });

  test("a shim that had no room says so", () => {
    expect(judged({ run: "void", idTorn: true })).toEqual({ kind: "never_started", why: "no space" });
    expect(judged({ run: "empty" })).toEqual({ kind: "never_started", why: "no space" });
    expect(judged({ run: "void" })).toEqual({ kind: "never_started", why: "no ticket was taken" });
  });

  test("a live attempt names the command once it is known, else the shim", () => {
    expect(judged({ run: "cmd", shimAlive: true, commandAlive: true })).toEqual({
      kind: "live",
      pid: 41,
      pidStarted: "8",
      started: true,
    });
    expect(judged({ run: "go", shimAlive: true })).toEqual({ kind: "live", pid: 40, pidStarted: "7", started: false });
  });
});

/** One attempt on a model disk: what the shim does step by step, each step one system call. */
interface World {
  id: "none" | "torn" | "whole";
  run: string | null;
  shim: "before" | "alive" | "dead";
  commandAlive: boolean;
  everStarted: boolean;
  step: number;
}

const SHIM_STEPS: readonly ((world: World) => boolean)[] = [
  (world) => ((world.shim = "alive"), true),
  (world) => ((world.id = "torn"), true),
  (world) => ((world.id = "whole"), true),
  (world) => (world.run === null ? ((world.run = ""), true) : false), // O_EXCL: the ticket, or refused
  (world) => ((world.run += "go\n"), true),
  (world) => ((world.run += `cmd ${stat(41, 8)}\n`), (world.commandAlive = true), (world.everStarted = true), true),
  (world) => ((world.commandAlive = false), true),
  (world) => ((world.run += "exit 0 12.50\n"), true),
  (world) => ((world.shim = "dead"), true),
];

const parsedRuns = new Map<string, RunRecord>();
const parsed = (text: string): RunRecord => {
  const known = parsedRuns.get(text) ?? parseRun(text);
  parsedRuns.set(text, known);
  return known;
};

/** The daemon's judgement with every read as a step of its own, in the order of `evidence.ts`. */
function* daemon(world: World, mayPlant: boolean): Generator<void, Judgement, void> {
  let progress: Progress = { mayPlant, planted: null, readAgain: false, looked: false };
  let before: Evidence | null = null;
  for (;;) {
    yield;
    const { id } = world;
    yield;
    const run = world.run === null ? null : parsed(world.run);
    yield;
    const shim = id === "whole" && world.shim === "alive" ? SHIM : null;
    yield;
    const command = run?.command != null && world.commandAlive ? COMMAND : null;
    const now: Evidence = {
      sameBoot: true,
      folderThere: true,
      run,
      shim,
      id,
      command,
      marked: null,
      startedTicks: 8,
      startedAt: 0,
      endedAt: 0,
    };
    progress = { ...progress, readAgain: before !== null && knownDead(before, now) };
    before = now;
    const verdict = judge(now, progress);
    if ("judgement" in verdict) return verdict.judgement;
    if (verdict.next === "plant") {
      yield;
      const planted = world.run === null ? "planted" : "refused"; // link(2): one step
      world.run ??= "void\n";
      progress = { ...progress, planted };
    }
  }
}

/** Runs one interleaving: each letter is a step of the shim (s), its death by -9 (k), or a step of the daemon (d). */
function play(schedule: string, mayPlant: boolean): { judgement: Judgement | null; world: World } {
  const world: World = { id: "none", run: null, shim: "before", commandAlive: false, everStarted: false, step: 0 };
  const judging = daemon(world, mayPlant);
  let judgement: Judgement | null = null;
  for (const letter of schedule) {
    if (letter === "k") {
      if (world.shim === "alive") world.shim = "dead";
      else if (world.shim === "before") world.step = SHIM_STEPS.length; // the request was lost with its spawner
      world.step = SHIM_STEPS.length;
    } else if (letter === "s") {
      const next = SHIM_STEPS[world.step];
      if (next === undefined) continue;
      world.step = next(world) ? world.step + 1 : SHIM_STEPS.length;
      if (world.step === SHIM_STEPS.length) world.shim = "dead";
    } else if (judgement === null) {
      const step = judging.next();
      if (step.done === true) judgement = step.value;
    }
  }
  return { judgement, world };
}

/** Enough for a planted judgement that reads three times; those that need more are not judged and not counted. */
const DAEMON_STEPS = 13;

/** All orders of `shim` steps and `daemon` steps. */
function* schedules(shim: string, daemonSteps: number): Generator<string> {
  if (shim === "") return yield "d".repeat(daemonSteps);
  if (daemonSteps === 0) return yield shim;
  for (const rest of schedules(shim.slice(1), daemonSteps)) yield (shim[0] ?? "") + rest;
  for (const rest of schedules(shim, daemonSteps - 1)) yield `d${rest}`;
}

describe("shim and daemon interleaved at every point", () => {
  const lives = Array.from({ length: SHIM_STEPS.length + 1 }, (_, steps) => `${"s".repeat(steps)}k`);
  const whole = "s".repeat(SHIM_STEPS.length);
  /** `expect` costs more than the judgement, and there are a million of them. */
  const hold = (holds: boolean, schedule: string) => {
    if (!holds) expect.fail(schedule);
  };

  test("an attempt judged never_started never starts, before or after, whoever dies", () => {
    let judged = 0;
    let never = 0;
    for (const life of [whole, ...lives]) {
      for (const schedule of schedules(life, DAEMON_STEPS)) {
        const { judgement, world } = play(`${schedule}${"s".repeat(20)}`, true);
        if (judgement === null) continue;
        judged++;
        if (judgement.kind === "never_started") {
          never++;
          hold(!world.everStarted, schedule);
        }
        if (judgement.kind === "ended") hold(world.run?.includes("exit") === true, schedule);
        hold(judgement.kind !== "asked", schedule);
        // A lost one is only what was killed.
        if (judgement.kind === "lost" || judgement.kind === "orphan") hold(life.includes("k"), schedule);
      }
    }
    expect(never).toBeGreaterThan(1000);
    expect(judged).toBeGreaterThan(never);
  });

  test("without leave to plant nothing is decided that the shim could contradict", () => {
    for (const life of [whole, ...lives]) {
      for (const schedule of schedules(life, 10)) {
        const { judgement, world } = play(`${schedule}${"s".repeat(20)}`, false);
        if (judgement?.kind === "never_started") hold(!world.everStarted, schedule);
        if (life === whole && judgement !== null) hold(["asked", "live", "ended"].includes(judgement.kind), schedule);
      }
    }
  });

  test("B-058 a second daemon's judgement agrees with the first about what never started", () => {
    for (const schedule of schedules(whole, 10)) {
      const { judgement, world } = play(schedule, true);
      if (judgement?.kind !== "never_started") continue;
      const second = daemon(world, true);
      let step = second.next();
      while (step.done !== true) step = second.next();
      expect(step.value.kind, schedule).toBe("never_started");
    }
  });
});
