import { execFileSync } from "node:child_process";
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";

/** One living or dead entry of the process table. */
export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  readonly session: number;
  /** One letter of `ps`: `Z` and `X` are dead, `T` is stopped. */
  readonly state: string;
  /** Identity together with the pid: clock ticks since boot on Linux, `lstart` where only `ps` can tell. */
  readonly started: string;
}

/** A process as a file remembers it; `started` is null where the shim cannot know it. */
export interface Identity {
  readonly pid: number;
  readonly session: number;
  readonly started: string | null;
}

/** The environment variable that marks every process of an attempt. */
export const ATTEMPT_MARK = "DROVER_ATTEMPT_ID";
/** The same for what drover runs on its own account: hooks, checks, commands that print a secret. */
export const ERRAND_MARK = "DROVER_ERRAND_ID";

/** The table at one moment, indexed by what makes a process belong to a tree. */
export interface Snapshot {
  readonly all: readonly Process[];
  readonly byPid: ReadonlyMap<number, Process>;
  readonly byParent: ReadonlyMap<number, readonly Process[]>;
  readonly bySession: ReadonlyMap<number, readonly Process[]>;
  readonly byGroup: ReadonlyMap<number, readonly Process[]>;
  /** By `NAME=value` of the two marks. */
  readonly byMark: ReadonlyMap<string, readonly Process[]>;
}

/** The process table of this host. Linux reads /proc; the other backend asks `ps` and knows whole seconds only. */
export interface ProcessTable {
  readonly backend: "proc" | "ps";
  /** One process, dead ones included; null when there is no such pid. */
  read(pid: number): Process | null;
  /** The command line of a process, words joined by spaces; empty when it cannot be read. */
  words(pid: number): string;
  /** Everything, marks included. Costs about 20 ms for 500 processes. */
  snapshot(): Snapshot;
  /** How many processes were ever made on this host; null where it does not say. Taken before a tree's first process is made. */
  forks(): number | null;
  /**
   * A look that begins after the call. Looks at everything that wait at the same time share one, so a stop of hundreds of
   * trees reads the table once per round.
   * @param since when the caller knows it, only what was made from then on is looked at: cheap after a short run
   */
  look(since: Since | null): Promise<Look>;
}

/** The beginning of a tree: its first pid, and `forks()` from before that was made. */
export interface Since {
  readonly pid: number;
  readonly forks: number;
}

/** A snapshot, and whether it is one of a quiet moment: only then does absence prove anything. */
export interface Look {
  readonly snapshot: Snapshot;
  /** No process was made while it was taken, and none was between two programs, where its mark cannot be read. */
  readonly quiet: boolean;
}

/** Zombies answer to signal 0 and keep their pid, so only the state tells. */
export const isAlive = (process: Process | null): process is Process =>
  process !== null && process.state !== "Z" && process.state !== "X";

/** True when the very process that `identity` names still runs. */
export function isSame(process: Process | null, identity: Identity): process is Process {
  // Many processes start within one tick: only pid and start time together name one.
  return (
    isAlive(process) &&
    process.pid === identity.pid &&
    (identity.started === null || process.started === identity.started)
  );
}

/**
 * Reads one line of /proc/PID/stat. The command's name stands in parentheses and may hold spaces, parentheses and
 * newlines: only the last `)` is certain.
 */
export function parseStat(line: string): Process | null {
  const nameEnd = line.lastIndexOf(")");
  if (nameEnd < 0) return null;
  const pid = Number.parseInt(line, 10);
  const fields = line.slice(nameEnd + 2).split(" ");
  const [state, parent, group, session] = fields;
  const started = fields[19]; // field 22 of the whole line
  if (
    !(pid > 0) ||
    state === undefined ||
    session === undefined ||
    started === undefined ||
    !/^\d+$/.test(started.trim())
  )
    return null;
  return {
    pid,
    parent: Number(parent),
    group: Number(group),
    session: Number(session),
    state,
    started: started.trim(),
  };
}

/** The identity that a shim wrote: a stat line, or a bare pid where there is no /proc. Null when it is not whole. */
export function parseIdentity(line: string): Identity | null {
  const stat = parseStat(line);
  if (stat !== null) return stat.pid > 1 ? { pid: stat.pid, session: stat.session, started: stat.started } : null;
  if (!/^\d+$/.test(line)) return null;
  const pid = Number(line);
  return pid > 1 ? { pid, session: pid, started: null } : null;
}

/**
 * The process that `identity` names, with its start time; null when it is gone. Where a shim could not know its own start
 * time, the path of its folder among its arguments says that the pid is still its.
 */
export function identify(identity: Identity | null, folder: string, table: ProcessTable): Process | null {
  if (identity === null) return null;
  const found = table.read(identity.pid);
  if (!isSame(found, identity)) return null;
  return identity.started !== null || table.words(found.pid).includes(folder) ? found : null;
}

/** The table of this platform. */
export const openProcessTable = (
  backend: "proc" | "ps" = process.platform === "linux" ? "proc" : "ps",
): ProcessTable => (backend === "proc" ? procTable() : psTable());

// One buffer for every read of /proc: a Buffer for each of 500 environments doubles the cost.
const shared = Buffer.allocUnsafe(256 * 1024);

/** The whole of a small kernel file, at most the shared buffer; null when it cannot be read. Valid until the next call. */
function peek(path: string): Buffer | null {
  let descriptor: number;
  try {
    descriptor = openSync(path, "r");
  } catch {
    return null; // gone meanwhile, or another user's
  }
  try {
    let length = 0;
    for (;;) {
      const read = readSync(descriptor, shared, length, shared.length - length, null);
      length += read;
      if (read === 0 || length === shared.length) return shared.subarray(0, length);
    }
  } catch {
    return null; // ESRCH: it ended between open and read
  } finally {
    closeSync(descriptor);
  }
}

/** Up to this many possible pids, a look of one's own is cheaper than a share of a look at everything. */
const MAX_CANDIDATES = 100;
/** A look at everything gives way to other work after this many processes: 5 ms or so. */
const SLICE = 100;

/** Kernel threads have neither environment nor anything of ours, and are the children of this one. */
const KTHREADD = 2;

function procTable(): ProcessTable {
  const pidMax = Number(peek("/proc/sys/kernel/pid_max")?.toString("latin1") ?? 0);
  const read = (pid: number): Process | null => {
    const stat = pid > 0 ? peek(`/proc/${pid}/stat`) : null;
    return stat === null ? null : parseStat(stat.toString("latin1"));
  };
  /** The newest pid of this namespace and the number of threads, from /proc/loadavg: `0.1 0.2 0.3 2/86 7387`. */
  const load = (): { lastPid: number; threads: number } | null => {
    const found = /(\d+) (\d+)\s*$/.exec(peek("/proc/loadavg")?.toString("latin1") ?? "");
    return found === null ? null : { threads: Number(found[1]), lastPid: Number(found[2]) };
  };
  const forks = (): number | null => {
    const found = /^processes (\d+)$/m.exec(peek("/proc/stat")?.toString("latin1") ?? "");
    return found === null ? null : Number(found[1]);
  };
  /** Collects processes with their marks, then makes a snapshot of them. */
  const collector = () => {
    const all: Process[] = [];
    const marks = new Map<Process, string[]>();
    let readable = true;
    return {
      add(pid: number) {
        // Most of those that can have been given out are gone again, and to fail to open costs ten times as much as to ask.
        const found = existsSync(`/proc/${pid}`) ? read(pid) : null;
        if (found === null) return;
        all.push(found);
        if (!isAlive(found) || found.parent === KTHREADD) return;
        const own = readMarks(pid);
        if (own === null) readable = false;
        else marks.set(found, own);
      },
      /** Whether the marks of all of them could be read. */
      isReadable: () => readable,
      snapshot: () => index(all, (found) => marks.get(found) ?? []),
    };
  };
  const collect = (pids: Iterable<number>) => {
    const found = collector();
    for (const pid of pids) found.add(pid);
    return found;
  };

  /** All pids that can have been given out since; null when that is unknown or too many. Pids are given out in a circle. */
  const candidates = (since: Since, lastPid: number, threads: number): number[] | null => {
    const length = lastPid >= since.pid ? lastPid - since.pid + 1 : pidMax - since.pid + lastPid + 1;
    if (length > MAX_CANDIDATES) return null;
    const made = (forks() ?? Number.POSITIVE_INFINITY) - since.forks;
    // A number in use is skipped, so the circle may go on by one for each living thread too.
    if (!(made + threads + 1000 < pidMax) || length > made + threads + 1000) return null;
    return Array.from({ length }, (_, i) => (since.pid + i < pidMax ? since.pid + i : since.pid + i - pidMax));
  };
  const isQuiet = (before: ReturnType<typeof load>): boolean => before !== null && before.lastPid === load()?.lastPid;
  const lookAtEverything = async (): Promise<Look> => {
    const before = load();
    const found = collector();
    let count = 0;
    for (const pid of pidsOf(readdirSync("/proc"))) {
      found.add(pid);
      if (++count % SLICE === 0) await nextTurn();
    }
    return { snapshot: found.snapshot(), quiet: found.isReadable() && isQuiet(before) };
  };

  let running: Promise<Look> | null = null;
  let waiting: Promise<Look> | null = null;
  return {
    backend: "proc",
    read,
    words: (pid) => peek(`/proc/${pid}/cmdline`)?.toString("utf8").replaceAll("\0", " ").trim() ?? "",
    snapshot: () => collect(pidsOf(readdirSync("/proc"))).snapshot(),
    forks,
    look(since) {
      const before = load();
      const pids = since === null || before === null ? null : candidates(since, before.lastPid, before.threads);
      if (pids !== null) {
        const found = collect(pids);
        return Promise.resolve({ snapshot: found.snapshot(), quiet: found.isReadable() && isQuiet(before) });
      }
      waiting ??= (running ?? nextTurn()).then(() => {
        waiting = null;
        running = lookAtEverything().finally(() => {
          running = null;
        });
        return running;
      });
      return waiting;
    },
  };
}

function* pidsOf(names: readonly string[]): Generator<number> {
  for (const name of names) {
    const code = name.charCodeAt(0);
    if (code >= 48 && code <= 57) yield Number(name);
  }
}

const MARKS = [ATTEMPT_MARK, ERRAND_MARK].map((name) => Buffer.from(`${name}=`));

/** A program is loaded in well under that many readings; one that waits for a disk is not. */
const LOADING_READINGS = 50;

/** The marks of a living process; null when it is between two programs, where the kernel shows no environment. */
function readMarks(pid: number): string[] | null {
  for (let reading = 0; reading < LOADING_READINGS; reading++) {
    const environment = peek(`/proc/${pid}/environ`);
    if (environment === null) return [];
    if (environment.length > 0) return marksIn(environment);
    if (hasNoEnvironment(peek(`/proc/${pid}/stat`)?.toString("latin1") ?? "")) return [];
  }
  return null;
}

/**
 * Whether a stat line says that its process has no environment, rather than none yet. The kernel tells where the code
 * begins (field 26 of the line) only after it has laid the environment out (fields 50 and 51), which for a moment begins
 * and ends at one place; what has no memory at all (field 23) runs no program any more.
 */
export function hasNoEnvironment(stat: string): boolean {
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [size, code, start, end] = [fields[20], fields[23], fields[47], fields[48]];
  if (size === undefined || code === undefined || start === undefined || end === undefined) return true; // gone
  return size === "0" || (code !== "0" && start === end);
}

/** The marks in an environment as the kernel shows it: entries that end in NUL. */
export function marksIn(environment: Buffer): string[] {
  const found: string[] = [];
  for (const mark of MARKS) {
    let at = environment.indexOf(mark);
    while (at > 0 && environment[at - 1] !== 0) at = environment.indexOf(mark, at + 1);
    if (at < 0) continue;
    const end = environment.indexOf(0, at);
    found.push(environment.toString("utf8", at, end < 0 ? environment.length : end));
  }
  return found;
}

function index(all: readonly Process[], marksOf: (process: Process) => readonly string[]): Snapshot {
  const byPid = new Map<number, Process>();
  const byParent = new Map<number, Process[]>();
  const bySession = new Map<number, Process[]>();
  const byGroup = new Map<number, Process[]>();
  const byMark = new Map<string, Process[]>();
  const add = <Key>(map: Map<Key, Process[]>, key: Key, found: Process) => {
    const there = map.get(key);
    if (there === undefined) map.set(key, [found]);
    else there.push(found);
  };
  for (const found of all) {
    byPid.set(found.pid, found);
    add(byParent, found.parent, found);
    add(bySession, found.session, found);
    add(byGroup, found.group, found);
    for (const mark of marksOf(found)) add(byMark, mark, found);
  }
  return { all, byPid, byParent, bySession, byGroup, byMark };
}

/**
 * The table by `ps`, for systems without /proc (macOS). Environments are shown for processes of the same user only, and
 * not for protected system programs; start times are whole seconds. Tried on Linux, where `ps` takes the same options.
 */
function psTable(): ProcessTable {
  const ps = (options: readonly string[]): string => {
    try {
      return execFileSync("/bin/ps", options, {
        encoding: "utf8",
        env: { LC_ALL: "C", PATH: "/usr/bin:/bin" },
        maxBuffer: 64 * 1024 * 1024,
        stdio: ["ignore", "pipe", "ignore"],
      });
    } catch {
      return ""; // `ps -p` of a pid that is gone ends with 1
    }
  };
  const columns = ["-o", "pid=,ppid=,pgid=,stat=,lstart="];
  const parse = (line: string): { found: Process; rest: string } | null => {
    // lstart is `Mon Jan  2 03:04:05 2026`. macOS has no session column worth having: a shim's group is its session.
    const parts = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(\S)\S*\s+(\S+\s+\S+\s+\S+\s+\S+\s+\d{4})(?:\s(.*))?$/s.exec(line);
    if (parts === null) return null;
    const [, pid, parent, group, state, started, rest] = parts;
    return {
      found: {
        pid: Number(pid),
        parent: Number(parent),
        group: Number(group),
        session: Number(group),
        state: state ?? "?",
        started: (started ?? "").replaceAll(/\s+/g, " "),
      },
      rest: rest ?? "",
    };
  };
  const table: ProcessTable = {
    backend: "ps",
    read: (pid) => (pid > 0 ? (parse(ps([...columns, "-p", String(pid)]).trimEnd())?.found ?? null) : null),
    words: (pid) => ps(["-ww", "-o", "command=", "-p", String(pid)]).trim(),
    snapshot() {
      const marks = new Map<number, string[]>();
      const all: Process[] = [];
      // `E` shows environments on macOS; the `ps` of Linux wants the letter without a dash for the same.
      const show = process.platform === "darwin" ? ["-axEww"] : ["axeww"];
      for (const line of ps([...show, ...columns, "-o", "command="]).split("\n")) {
        const parsed = parse(line);
        if (parsed === null) continue;
        all.push(parsed.found);
        const own = [...parsed.rest.matchAll(/(?:^|\s)(DROVER_(?:ATTEMPT|ERRAND)_ID=\S+)/g)].map(
          (match) => match[1] ?? "",
        );
        if (own.length > 0) marks.set(parsed.found.pid, own);
      }
      return index(all, (found) => marks.get(found.pid) ?? []);
    },
    forks: () => null,
    look: () => Promise.resolve({ snapshot: table.snapshot(), quiet: false }),
  };
  return table;
}

/** Names this boot of this host, so that a pid of an earlier boot is never taken for one of now. */
export function bootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim();
  } catch {
    return execFileSync("/usr/sbin/sysctl", ["-n", "kern.bootsessionuuid"], { encoding: "utf8" }).trim();
  }
}

/** A process that carries the mark of an attempt. */
export interface MarkedProcess {
  readonly pid: number;
  readonly pidStarted: string;
  readonly attemptId: string;
}

/** How long a process that was killed may take to be gone. */
const GONE_MS = 2_000;

/** Ends a process that carries an attempt's mark, when it is still that one; answers whether it is gone. Never throws. */
export async function endMarked(
  { pid, pidStarted, attemptId }: MarkedProcess,
  table: ProcessTable = openProcessTable(),
): Promise<boolean> {
  const isThere = (): boolean => {
    const found = table.read(pid);
    return found !== null && isAlive(found) && found.started === pidStarted;
  };
  if (!isThere()) return true;
  // A program may have replaced itself by one without the mark since it was seen: that one is not proved ours.
  if (!(table.snapshot().byMark.get(`${ATTEMPT_MARK}=${attemptId}`) ?? []).some((one) => one.pid === pid)) return false;
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    return !isThere(); // another user's, or gone just now
  }
  const until = performance.now() + GONE_MS;
  while (isThere() && performance.now() < until) await new Promise((done) => setTimeout(done, 10));
  return !isThere();
}

/** Live processes whose environment names an attempt with this prefix (all when empty), for `doctor`: the caller knows which attempts live. */
export function orphans(prefix = "", table: ProcessTable = openProcessTable()): readonly MarkedProcess[] {
  const found: MarkedProcess[] = [];
  for (const [mark, processes] of table.snapshot().byMark) {
    if (!mark.startsWith(`${ATTEMPT_MARK}=${prefix}`)) continue;
    for (const one of processes) {
      if (isAlive(one))
        found.push({ pid: one.pid, pidStarted: one.started, attemptId: mark.slice(ATTEMPT_MARK.length + 1) });
    }
  }
  return found.toSorted((a, b) => a.pid - b.pid);
}
