/**
 * The real daemon under load in a home of its own, and everything that it is made of killed by a seed: itself, at named
 * points and at random, its spawner, shims, what they run, the server of its database. After each round what was at work
 * ends, and the store, the process table and what the children wrote about themselves are held against each other.
 */
import { type ChildProcess, spawn } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { AppError } from "../../src/core/errors.ts";
import { askHealth, callDaemon } from "../../src/http/client.ts";
import { readMigrations } from "../../src/store/migrate.ts";
import { openStore, parseStoreAddress } from "../../src/store/open.ts";
import { asStore, operations } from "../../src/store/operations.ts";
import { endPids } from "../children.ts";
import { type Cluster, makeDatabase } from "../postgres.ts";
import { chance, isSpawnerLine, until } from "./installation.ts";
import { createWitness, diaryOf, readTables, SILENCE, type Tables } from "./truth.ts";

export interface OrdealOptions {
  readonly seed: number;
  /** It ends with the round in which there are that many. */
  readonly kills: number;
  /** The built programs: each does its share of the kills, so that the second one is an upgrade in the middle. */
  readonly programs: readonly string[];
  /** Address of an empty database; absent: SQLite in the home. */
  readonly database?: string;
  /** Kills the server of the database and starts it again; answers whether it did: several homes share it. */
  readonly killServer?: (how: "SIGKILL" | "SIGQUIT") => boolean;
  /** A second host on that database, which takes over what a silent one has. */
  readonly withPeer?: boolean;
  /** The first round is one in which the daemon is silent for longer than its lease; else it is as the seed says. */
  readonly silentFirst?: boolean;
}

/**
 * What was killed, by kind. Beside the kills: `between`, those of them between a request and its ticket; `stopped`, stops of
 * the daemon for longer than its lease; `takenOver`, attempts that the other host took meanwhile; `down`, orderly stops.
 */
export type Tally = Record<(typeof KINDS)[number] | "between" | "stopped" | "takenOver" | "down" | "attempts", number>;
export const KINDS = ["daemon", "spawner", "shim", "command", "server"] as const;
export const killsOf = (tally: Tally): number => KINDS.reduce((sum, kind) => sum + tally[kind], 0);
export const noTally = (): Tally => ({
  daemon: 0,
  spawner: 0,
  shim: 0,
  command: 0,
  server: 0,
  between: 0,
  stopped: 0,
  takenOver: 0,
  down: 0,
  attempts: 0,
});

const LOOPS = 5;
/** Seconds that a run takes from which another host takes over. */
const LONG = "6.5";
const LEASE_MS = 1_500;
const TAKEOVER_MS = 4_000;
/** Everything quick, so that a round takes seconds; caps so low that they bind. */
const CONFIG = `limits:
  leaseMs: ${LEASE_MS}ms
  renewMs: 400ms
  takeoverMs: ${TAKEOVER_MS}ms
  watchMs: 300ms
  askPatienceMs: 1500ms
  uncountedBackoffMs: 100ms
  uncountedBackoffCapMs: 500ms
  backoffCapMs: 500ms
  storeBackoffMs: 50ms
  storeBackoffCapMs: 400ms
  agentLookMs: 200ms
  minFreeBytes: 1MiB
caps:
  commands: 6
  agents: 1
`;
const POINTS = ["claimed", "recorded", "spawned", "exited", "settled"] as const;
/** How long anything may take to be seen, on a machine that is busy. */
const PATIENCE_MS = 180_000;
/** How often the whole store, or the whole process table, is looked at. */
const LOOK_MS = 400;

interface Daemon {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly program: string;
  /** It ended by itself or by us. */
  readonly isOver: () => boolean;
  /** Says what it is to do to itself at points: lines of `points.ts`. */
  readonly arm: (script: readonly string[]) => void;
  /** Lines of the strikes that it gave itself since then. */
  readonly strikes: () => readonly string[];
}

/** A home of its own with a daemon in it, and its processes found without a look at all others. */
function openHome(options: OrdealOptions) {
  const home = mkdtempSync(join(tmpdir(), "drover-kills-"));
  const state = join(home, "state");
  const runs = join(state, "runs");
  const diary = join(home, "diary");
  for (const folder of ["bin", "agents", "logs"]) mkdirSync(join(home, folder));
  mkdirSync(state, { mode: 0o700 });
  writeFileSync(join(state, "config.yaml"), CONFIG);
  symlinkSync(resolve("test/agents/stand-in.mjs"), join(home, "agents", "claude"));
  writeFileSync(
    join(home, "bin", "claude"),
    `#!/bin/sh
[ "$1" = --version ] || echo "$DROVER_LOOP|$DROVER_SLOT|$DROVER_ATTEMPT_ID|start;" >>'${diary}'
exec '${process.execPath}' '${join(home, "agents", "claude")}' "$@"
`,
    { mode: 0o755 },
  );
  const env = {
    PATH: `${join(home, "bin")}:${process.env["PATH"] ?? "/usr/bin:/bin"}`,
    HOME: home,
    DROVER_HOME: state,
    DROVER_BACKGROUND: "1",
    ...(options.database === undefined ? {} : { DROVER_STORE: options.database }),
  };
  const { version } = JSON.parse(readFileSync(resolve("package.json"), "utf8")) as { version: string };
  const client = { socket: join(state, "drover.sock"), version, runToken: null, insideRun: false, patienceMs: 20_000 };
  let started = 0;

  const textOf = (path: string): string => {
    try {
      return readFileSync(path, "utf8");
    } catch {
      return ""; // not there yet, or gone just now
    }
  };
  /** Of a line of /proc: pid, state, parent, start time. */
  const statOf = (line: string) => {
    const rest = line.slice(line.lastIndexOf(")") + 2).split(" ");
    return { pid: Number.parseInt(line, 10), state: rest[0] ?? "", started: rest[19] ?? "" };
  };
  const isAlive = (line: string): boolean => {
    if (line === "") return false;
    const now = statOf(textOf(`/proc/${statOf(line).pid}/stat`));
    return now.started !== "" && now.started === statOf(line).started && now.state !== "Z" && now.state !== "X";
  };
  const stateOf = (pid: number): string => statOf(textOf(`/proc/${pid}/stat`)).state;

  return {
    home,
    state,
    diary,
    place: options.database ?? join(state, "drover.db"),
    call: <T>(name: string, input: object): Promise<T> => callDaemon(client, name, input) as Promise<T>,

    raise(program: string): Daemon {
      const points = join(home, "logs", `points-${++started}`);
      writeFileSync(points, "");
      const output = openSync(join(home, "logs", `daemon-${started}`), "w");
      const child = spawn(process.execPath, ["--max-semi-space-size=2", program, "up", "--foreground", "--json"], {
        env: { ...env, DROVER_TEST_POINTS: points },
        cwd: "/",
        stdio: ["ignore", output, output],
      });
      closeSync(output);
      const strikes = () => textOf(`${points}.struck`).split("\n").slice(0, -1);
      let before = 0;
      let scripts = 0;
      return {
        child,
        pid: child.pid ?? -1,
        program,
        isOver: () => child.exitCode !== null || child.signalCode !== null,
        arm(script) {
          before = strikes().length;
          writeFileSync(`${points}.new`, [...script, `end ${++scripts}`].join("\n"));
          renameSync(`${points}.new`, points);
        },
        strikes: () => strikes().slice(before),
      };
    },
    /** Resolves when it serves, or has ended. */
    async isUp(daemon: Daemon): Promise<boolean> {
      await until(
        "the daemon to be up",
        async () => {
          if (daemon.isOver()) return true;
          try {
            const health = await askHealth({ ...client, patienceMs: 2_000 });
            return health.pid === daemon.pid && health.state === "up";
          } catch {
            return false; // not yet
          }
        },
        PATIENCE_MS,
      );
      return !daemon.isOver();
    },
    isStopped: (pid: number): boolean => stateOf(pid) === "T",
    /** The resident spawner of a daemon, which is its child; null while there is none. */
    spawnerOf(daemon: Daemon): number | null {
      const children = textOf(`/proc/${daemon.pid}/task/${daemon.pid}/children`).trim().split(" ").map(Number);
      return children.find((pid) => isSpawnerLine(textOf(`/proc/${pid}/cmdline`))) ?? null;
    },
    /** Live shims and what they run, by the files that name them; of the newest folders only. */
    trees(): { readonly shim: number; readonly command: number | null }[] {
      if (!existsSync(runs)) return [];
      return readdirSync(runs)
        .filter((name) => name.startsWith("att_"))
        .toSorted()
        .slice(-40)
        .flatMap((name) => {
          const shim = textOf(join(runs, name, "id"));
          const command = /^cmd (.*)$/m.exec(textOf(join(runs, name, "run")))?.[1] ?? "";
          if (!isAlive(shim)) return [];
          return [{ shim: statOf(shim).pid, command: isAlive(command) ? statOf(command).pid : null }];
        });
    },
    /** Whether an attempt was prepared and has no ticket, of a shim or of a tombstone. */
    lacksTicket: (attempt: string): boolean =>
      readdirSync(runs).some((name) => name.startsWith(`${attempt}.`) && !existsSync(join(runs, name, "run"))),
    /** Attempts of this home that have processes, by their environment. */
    marked: (): string[] =>
      readdirSync("/proc").flatMap((name) => {
        if (!/^\d+$/.test(name)) return [];
        const environment = textOf(`/proc/${name}/environ`);
        if (!environment.includes(`DROVER_HOME=${state}\0`)) return [];
        const attempt = /(?:^|\0)DROVER_ATTEMPT_ID=([^\0]*)/.exec(environment)?.[1];
        return attempt === undefined || /[ZX]/.test(stateOf(Number(name))) ? [] : [attempt];
      }),
    logTail: () => textOf(join(state, "logs", "daemon.log")).slice(-2_000),
    remove: () => rmSync(home, { recursive: true, force: true, maxRetries: 5 }),
  };
}

const signal = (pid: number, name: NodeJS.Signals): boolean => {
  try {
    process.kill(pid, name);
    return true;
  } catch {
    return false; // it has ended by itself in this moment
  }
};

/** Runs one home to its end. Throws with the seed, the number of the kill and the home, which stays then. */
export async function ordeal(options: OrdealOptions): Promise<Tally> {
  const { seed, kills, programs, database, killServer } = options;
  const next = chance(seed);
  const below = (n: number): number => Math.floor(next() * n);
  const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
  const tally = noTally();
  const home = openHome(options);
  const peer = options.withPeer === true ? openHome(options) : null;
  const witness = createWitness();
  const spawners = new Set<number>();
  /** Runs that were accepted: what was acknowledged is there, whatever came after. */
  const accepted = new Set<string>();
  /** Spawners that go on when the next daemon is up. */
  const resumeLater: number[] = [];
  let daemon: Daemon | null = null;
  let peerDaemon: Daemon | null = null;
  let round = 0;
  let plan = "start";

  const program = (): string =>
    programs[Math.min(programs.length - 1, Math.floor((killsOf(tally) / kills) * programs.length))] as string;
  const chronicle = (what: string) => `seed ${seed}, kill ${killsOf(tally)}, round ${round} (${plan}): ${what}`;

  /** The daemon that serves; a new one when the last has ended. */
  async function serving(): Promise<Daemon> {
    while (daemon === null || daemon.isOver()) {
      const one = home.raise(program());
      daemon = one;
      if (await home.isUp(one)) break;
      // Its database is just being started again.
      if (database === undefined || one.child.exitCode !== 5)
        throw new Error(`the daemon ended with ${one.child.exitCode ?? one.child.signalCode}`);
      await pause(100);
    }
    return daemon;
  }

  const over = (one: Daemon) => until("the daemon to end", () => one.isOver(), PATIENCE_MS);
  const kill = (kind: (typeof KINDS)[number], pid: number | null): boolean => {
    if (pid === null || !signal(pid, "SIGKILL")) return false;
    tally[kind] += 1;
    return true;
  };
  const spawnerOf = (one: Daemon): number | null => {
    const pid = home.spawnerOf(one);
    if (pid !== null) spawners.add(pid);
    return pid;
  };
  const strike = (one: Daemon, nth: number) =>
    until(
      `strike ${nth}`,
      () => one.strikes().length >= nth && (one.isOver() || home.isStopped(one.pid)) && one.strikes()[nth - 1],
      PATIENCE_MS,
    );

  /** Something small is killed beside the daemon, while it works. */
  async function besides(one: Daemon): Promise<void> {
    for (const kind of ["shim", "command", "shim", "command", "spawner", "run", "server"] as const) {
      if (next() < 0.25) continue;
      await pause(next() * 120);
      if (kind === "server") {
        if (killServer === undefined || next() < 0.35) continue;
        if (killServer(next() < 0.5 ? "SIGQUIT" : "SIGKILL")) tally.server += 1;
      } else if (kind === "spawner") kill("spawner", spawnerOf(one));
      else if (kind === "run") await byHand(one);
      else {
        const trees = home.trees().filter((tree) => kind === "shim" || tree.command !== null);
        const tree = trees[below(trees.length)];
        if (tree !== undefined) kill(kind, kind === "shim" ? tree.shim : tree.command);
      }
    }
  }

  /** A run that a person starts. Its answer may be lost with the daemon; what was answered counts. */
  async function byHand(one: Daemon): Promise<void> {
    if (one.isOver() || home.isStopped(one.pid)) return;
    const status = below(3);
    const asked = home.call<{ id: string }>("run", {
      shell: scriptOf(home.diary, status),
      cwd: "/",
      detach: true,
      attempts: 2,
      backoffMs: 200,
    });
    // It may stand at a point by now, and answer when it goes on.
    void asked.then(
      ({ id }) => accepted.add(id),
      () => {},
    );
    await Promise.race([asked.catch(() => {}), pause(300)]);
  }

  /** Some spawners, and then the daemon, die between a request and its ticket. */
  async function betweenAskAndTicket(one: Daemon): Promise<void> {
    const deaths = 4 + below(4);
    one.arm(
      Array.from({ length: deaths + 1 }, (_, i) => [
        `recorded ${1 + below(3)} SIGSTOP`,
        `spawned same ${i < deaths ? "SIGSTOP" : "SIGKILL"}`,
      ]).flat(),
    );
    for (let i = 0; i <= deaths; i++) {
      await strike(one, 2 * i + 1);
      const spawner = spawnerOf(one);
      if (spawner !== null) signal(spawner, "SIGSTOP");
      signal(one.pid, "SIGCONT");
      const asked = (await strike(one, 2 * i + 2)).split(" ")[1] ?? "";
      // Its request is in the pipe of one that reads nothing now.
      const isBetween = () => spawner !== null && home.lacksTicket(asked);
      if (i < deaths) {
        if (isBetween() && kill("spawner", spawner) && isBetween()) tally.between += 1;
        signal(one.pid, "SIGCONT");
        await besides(one);
        continue;
      }
      await over(one);
      tally.daemon += 1;
      if (isBetween()) tally.between += 1;
      if (spawner === null) continue;
      // What is in its pipe starts now, or soon, or when the next daemon is up, or never.
      const fate = below(4);
      if (fate === 0) kill("spawner", spawner);
      else if (fate === 1) signal(spawner, "SIGCONT");
      else if (fate === 2) void pause(next() * 800).then(() => signal(spawner, "SIGCONT"));
      else resumeLater.push(spawner);
    }
  }

  /** It is silent for longer than its lease; with a second host all that it has is taken over, and it finds itself fenced. */
  async function silent(one: Daemon): Promise<void> {
    if (peer === null) {
      await besides(one);
      signal(one.pid, "SIGSTOP");
      await pause(LEASE_MS + 500 + next() * 500);
    } else {
      const takenOver = async () =>
        (await patiently()).attempts.filter((row) => SILENCE.test(String(row["message"]))).length;
      const before = await takenOver();
      await until(
        "a long run to be at work",
        async () => {
          const { runs, attempts } = await patiently();
          const long = runs.find((row) => row["finished_at"] === null && String(row["target"]).includes(LONG));
          if (long !== undefined)
            return attempts.some((row) => row["run_id"] === long["id"] && row["status"] === "running");
          // Of which nobody may know whether it ran: its next try comes when its tree has been ended.
          const policy = { attempts: 2, backoffMs: 200, onLost: "retry" };
          await home
            .call("run", { shell: scriptOf(home.diary, 0, LONG), cwd: "/", detach: true, ...policy })
            .catch(() => {});
          return false;
        },
        PATIENCE_MS,
        LOOK_MS,
      );
      signal(one.pid, "SIGSTOP");
      const stoppedAt = Date.now();
      await until(
        "the other host to take over",
        async () => {
          if (Date.now() - stoppedAt < TAKEOVER_MS) return false;
          // Any change there makes it look around.
          await peer.call("run", { shell: scriptOf(home.diary, 0), cwd: "/", detach: true }).catch(() => {});
          return (await takenOver()) > before;
        },
        PATIENCE_MS,
        LOOK_MS,
      );
    }
    signal(one.pid, "SIGCONT");
    tally.stopped += 1;
  }

  /** One round: what is killed beside the daemon, and how it ends. */
  async function oneRound(): Promise<void> {
    const one = await serving();
    const chosen = round === 1 && options.silentFirst === true ? 1 : next();
    if (chosen < 0.7) {
      plan = "between";
      await betweenAskAndTicket(one);
    } else if (chosen < 0.84) {
      const point = POINTS[below(POINTS.length)] as string;
      plan = `at ${point}`;
      one.arm([`${point} ${1 + below(8)} SIGKILL`]);
      await besides(one);
      await over(one);
      tally.daemon += 1;
    } else if (chosen < 0.93) {
      plan = "at random";
      await besides(one);
      await pause(next() * 400);
      kill("daemon", one.pid);
      await over(one);
    } else if (chosen < 0.965) {
      plan = "down and up";
      await besides(one);
      await home.call("daemon.stop", { drainMs: 0, stopRuns: next() < 0.5 });
      await over(one);
      tally.down += 1;
    } else {
      plan = "silent";
      await silent(one);
    }
  }

  /** What was at work when something was killed has ended, and then everything is as it must be. */
  async function settle(): Promise<void> {
    const since = Date.now();
    await serving();
    for (const pid of resumeLater.splice(0)) signal(pid, "SIGCONT");
    await until(
      "what was at work to end",
      async () => {
        const tables = await patiently();
        return !tables.attempts.some((row) => row["finished_at"] === null && Number(row["created_at"]) <= since);
      },
      PATIENCE_MS,
      LOOK_MS,
    );
    await holds();
  }

  /** Asks until it is done: the server may be killed for another home meanwhile. */
  const surely = (name: string, input: object) =>
    until(
      name,
      () =>
        home.call(name, input).then(
          () => true,
          (error: unknown) => {
            if (error instanceof AppError && error.code === "name_taken") return true; // an answer was lost
            if (error instanceof AppError && error.kind === "unreachable") return false;
            throw error;
          },
        ),
      PATIENCE_MS,
      LOOK_MS,
    );

  /** The database may be on its way down or up. */
  const patiently = (): Promise<Tables> =>
    until("the store to be read", () => readTables(home.place).catch(() => null), PATIENCE_MS, LOOK_MS);

  async function holds(): Promise<Tables> {
    const before = diaryOf(home.diary);
    const tables = await patiently();
    const broken = witness(tables, { before, after: diaryOf(home.diary) });
    for (const id of accepted)
      if (!tables.runs.some((row) => row["id"] === id)) broken.push(`${id} was accepted and is not there`);
    if (broken.length > 0) throw new Error(broken.slice(0, 20).join("\n"));
    await until(
      "no process without a live attempt",
      async () => {
        const marked = home.marked();
        const now = await patiently();
        const attemptOf = new Map(now.attempts.map((row) => [row["id"], row]));
        const trees = new Map<string, string>();
        for (const attempt of marked) {
          const row = attemptOf.get(attempt);
          if (row === undefined || row["finished_at"] !== null) return false;
          const step = String(row["step_id"]);
          if ((trees.get(step) ?? attempt) !== attempt) return false;
          trees.set(step, attempt);
        }
        return true;
      },
      PATIENCE_MS,
      LOOK_MS,
    );
    return tables;
  }

  /** Nothing new, and what is there ends: then nothing is left anywhere. */
  async function drain(): Promise<void> {
    plan = "drain";
    const last = await serving();
    const names = [...Array.from({ length: LOOPS }, (_, i) => `loop${i}`), "agent"];
    for (const loop of names) await surely("loop.pause", { loop });
    let left: Tables["runs"] = [];
    await until(
      "everything to end",
      async () => {
        left = (await patiently()).runs.filter((row) => row["finished_at"] === null);
        // What was due and had not started when its loop was paused waits with it.
        const waiting = left.filter((row) => row["status"] === "queued");
        await Promise.all(waiting.map((row) => home.call("cancel", { run: row["id"] }).catch(() => {})));
        return left.length === 0;
      },
      PATIENCE_MS,
      LOOK_MS,
    ).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify(left.slice(0, 5))}`);
    });
    const tables = await holds();
    tally.attempts = tables.attempts.length;
    tally.takenOver = tables.attempts.filter((row) => SILENCE.test(String(row["message"]))).length;
    const open = [
      ...tables.steps.filter((row) => row["finished_at"] === null),
      ...tables.attempts.filter((row) => row["finished_at"] === null),
      ...tables.claims,
      ...tables.slots.filter((row) => row["outcome"] === null),
    ];
    if (open.length > 0) throw new Error(`left when everything had ended: ${JSON.stringify(open.slice(0, 5))}`);
    // Only a killed shim, or a host that was taken for gone, loses the end of an attempt.
    const lost = tables.attempts.filter((row) => row["status"] === "lost" && row["started_at"] !== null).length;
    if (lost > tally.shim + tally.takenOver)
      throw new Error(`${lost} attempts are lost, ${tally.shim} shims were killed`);
    await nothingIsStuck();
    await home.call("daemon.stop", { drainMs: 0, stopRuns: true });
    await over(last);
    await until("nothing to be left", () => home.marked().length === 0 && home.trees().length === 0, 20_000);
    await until("each spawner to end", () => [...spawners].every((pid) => !isSpawner(pid)), 20_000);
  }

  async function nothingIsStuck(): Promise<void> {
    const handle = await openStore({
      address: parseStoreAddress(database ?? `sqlite:${home.place}`, home.state),
      table: operations,
      clock: { now: Date.now },
      use: "read",
      migrations: readMigrations(pathToFileURL(`${resolve("src/store/migrations")}/`)),
    });
    try {
      const hostId = readFileSync(join(home.state, "host"), "utf8").trim();
      const found = await asStore(handle.store).stuck.find({ hostId, limit: 10, looked: 1_000, oldMs: 0, goneMs: 0 });
      if (found.length > 0) throw new Error(`stuck: ${JSON.stringify(found)}`);
    } finally {
      await handle.close();
    }
  }

  try {
    if (peer !== null)
      do peerDaemon = peer.raise(programs[0] as string);
      while (!(await peer.isUp(peerDaemon)));
    await serving();
    for (let i = 0; i < LOOPS; i++)
      await surely("loop.add", {
        name: `loop${i}`,
        every: "1s",
        shell: scriptOf(home.diary, i % 3),
        cwd: "/",
        attempts: 2,
        backoffMs: 200,
        breaker: 0,
        overlap: (["skip", "queue"] as const)[i % 2],
        queueLimit: 3,
      });
    const agent = { agent: "claude", prompt: "MODE=slow 300", worktree: "off" };
    await surely("loop.add", { name: "agent", every: "2s", ...agent, cwd: "/", breaker: 0 });
    while (killsOf(tally) < kills) {
      round += 1;
      await oneRound();
      plan = `${plan}, behind it`;
      await settle();
    }
    await drain();
  } catch (error) {
    throw new Error(
      `${chronicle(error instanceof Error ? error.message : String(error))}\nhome ${home.home}\n${home.logTail()}`,
      {
        cause: error,
      },
    );
  } finally {
    const left = [daemon, peerDaemon].flatMap((one: Daemon | null) => (one === null || one.isOver() ? [] : [one.pid]));
    endPids(left);
  }
  peer?.remove();
  home.remove();
  return tally;
}

/** A server that was just killed is left alone for so long, and for so many times what its restart took: work is to be done. */
const SERVER_PAUSE_MS = 5_000;
const SERVER_PAUSES = 6;

/** Kills a server that several homes share, for any of them. */
export function serverKiller(cluster: Cluster): NonNullable<OrdealOptions["killServer"]> {
  let nextAt = performance.now() + SERVER_PAUSE_MS;
  return (how) => {
    const startedAt = performance.now();
    if (startedAt < nextAt) return false;
    cluster.crash(how);
    cluster.restart();
    const now = performance.now();
    nextAt = now + Math.max(SERVER_PAUSE_MS, SERVER_PAUSES * (now - startedAt));
    return true;
  };
}

/** An empty database of a server that is killed now and then. */
export const freshDatabase = (cluster: Cluster): Promise<string> =>
  until("a database to be made", () => makeDatabase(cluster.url).catch(() => null), PATIENCE_MS, LOOK_MS);

const isSpawner = (pid: number): boolean => {
  try {
    return isSpawnerLine(readFileSync(`/proc/${pid}/cmdline`, "utf8"));
  } catch {
    return false; // it has ended
  }
};

/** Says who it is as its first act, and how it ends as its last; ends with that status. */
function scriptOf(diary: string, status: number, seconds = `0.${status + 2}`): string {
  const me = '"$DROVER_LOOP|$DROVER_SLOT|$DROVER_ATTEMPT_ID';
  return `echo ${me}|start;" >>'${diary}'; sleep ${seconds}; echo ${me}|exit ${status};" >>'${diary}'; exit ${status}`;
}
