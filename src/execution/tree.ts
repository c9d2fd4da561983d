import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { EndReport } from "../core/ports.ts";
import type { Identity, Process, ProcessTable, Since, Snapshot } from "./processes.ts";
import { isAlive, isSame } from "./processes.ts";

/** What makes a process belong to one tree. */
export interface Tree {
  /** The leader of the tree's session and group. */
  readonly leader: Identity | null;
  /** Whether the leader is a shim, which records the end: it is stopped, never killed before the others are gone. */
  readonly recorder: boolean;
  /** Where the tree began in the row of all processes, when that is known. */
  readonly since: Since | null;
  /** Pids of our own processes in it beside the recorder: ended with the tree, not counted as found in it. */
  readonly own: readonly number[];
  /** `NAME=value` in the environment of its processes. */
  readonly mark: string;
  /** The cgroup that only this tree is in; null where there is none. */
  readonly cgroup: string | null;
  /** The shim is a child subreaper: while it lives, nothing of the tree can leave its descendants. */
  readonly reaper: boolean;
}

/** Everything after the grace takes at most this long. */
export const KILL_BUDGET_MS = 2_000;

/** A shim that was thawed needs milliseconds to record; then it is ended too. */
const RECORD_BUDGET_MS = 500;
const LOOK_EVERY_MS = 25;
const ROUNDS = 50;
/** Looks at a cgroup that is still populated although nothing of it lives: about half a second. */
const EMPTYING_ROUNDS = 30;

const keyOf = (process: Process): string => `${process.pid}:${process.started}`;

/** A process of ours that carries the mark of an attempt (drover was started inside one) is never a victim. */
const isOurs = (found: Process): boolean => found.pid <= 1 || found.pid === process.pid;

/** Live processes of the tree: its session, its group, descendants of members, the mark, its cgroup, and all ever seen. */
function membersOf(
  tree: Tree,
  snapshot: Snapshot,
  seen: ReadonlyMap<string, Process>,
  read: ProcessTable["read"],
): Process[] {
  const members = new Map<string, Process>();
  const queue: Process[] = [];
  const add = (found: Process | undefined) => {
    if (found === undefined || isOurs(found) || members.has(keyOf(found))) return;
    members.set(keyOf(found), found);
    queue.push(found);
  };
  if (tree.leader !== null) {
    const leader = snapshot.byPid.get(tree.leader.pid);
    // Another process with the shim's pid proves that session and group are gone: a number in use as either is not given out.
    const reused = leader !== undefined && tree.leader.started !== null && leader.started !== tree.leader.started;
    if (!reused) {
      add(leader);
      for (const found of snapshot.bySession.get(tree.leader.session) ?? []) add(found);
      for (const found of snapshot.byGroup.get(tree.leader.session) ?? []) add(found);
    }
  }
  for (const found of snapshot.byMark.get(tree.mark) ?? []) add(found);
  // Listed after the table was: what was forked in between is in the one and not in the other.
  for (const pid of cgroupMembers(tree.cgroup)) add(snapshot.byPid.get(pid) ?? read(pid) ?? undefined);
  for (const [key, old] of seen) {
    const now = snapshot.byPid.get(old.pid);
    if (now !== undefined && keyOf(now) === key) add(now);
  }
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    // Children of a dead member were handed on when it died; a zombie has none.
    for (const child of snapshot.byParent.get(next.pid) ?? []) add(child);
  }
  return [...members.values()].filter(isAlive);
}

function cgroupMembers(cgroup: string | null): number[] {
  if (cgroup === null) return [];
  try {
    return readFileSync(join(cgroup, "cgroup.procs"), "latin1").split("\n").filter(Boolean).map(Number);
  } catch {
    return []; // removed: nothing is in it
  }
}

/** What the kernel says about a cgroup: true when no process is in it or below; null when it cannot be asked. */
function isCgroupEmpty(cgroup: string): boolean | null {
  try {
    return /^populated 0$/m.test(readFileSync(join(cgroup, "cgroup.events"), "latin1"));
  } catch {
    return existsSync(cgroup) ? null : true; // only an empty one can be removed
  }
}

function freeze(cgroup: string | null, frozen: boolean): void {
  if (cgroup === null) return;
  try {
    writeFileSync(join(cgroup, "cgroup.freeze"), frozen ? "1" : "0");
  } catch {
    // Removed, or a kernel without it: stopping one by one does the same, slower.
  }
}

/** Ends all that is in a cgroup in one step. */
function killCgroup(cgroup: string | null): void {
  if (cgroup === null) return;
  try {
    writeFileSync(join(cgroup, "cgroup.kill"), "1");
  } catch {
    // Removed, or a kernel before 5.14: the list and the signals do it.
  }
}

/**
 * The one tree-kill, for every reason: TERM, the grace, then freeze, list and KILL all but the shim until a list is empty,
 * then let the shim record. Bounded by the grace and `KILL_BUDGET_MS`. Throws nothing for processes that are gone.
 *
 * "Proved empty" means: the tree's cgroup is empty, or the shim as subreaper had nothing left, or (the weakest) a list of
 * the whole table found nothing while no process was made. The last one cannot see a process that cleared its environment
 * and left session and parents behind.
 */
export async function endTree(tree: Tree, graceMs: number, table: ProcessTable): Promise<EndReport> {
  const seen = new Map<string, Process>();
  const signalled = new Set<string>();
  const isShim = (found: Process) => tree.recorder && tree.leader !== null && isSame(found, tree.leader);

  const count = (found: Process) => {
    if (!isShim(found) && !tree.own.includes(found.pid)) signalled.add(keyOf(found));
  };

  let stale = true; // something was done since the last list
  let quiet = false; // no process was made during the last list
  let lookMs = 0; // how long the last list took: with many trees at once, less often
  const look = async (): Promise<Process[]> => {
    const startedAt = performance.now();
    stale = false;
    const taken = await table.look(tree.since);
    const members = membersOf(tree, taken.snapshot, seen, table.read);
    for (const member of members) seen.set(keyOf(member), member);
    quiet = taken.quiet;
    lookMs = performance.now() - startedAt;
    return members;
  };
  const send = (found: Process, signal: NodeJS.Signals) => {
    // Closes the gap between list and kill to microseconds: the pid may be another's by now.
    const now = table.read(found.pid);
    if (!isAlive(now) || now.started !== found.started || isOurs(now)) return;
    count(found);
    stale = true;
    try {
      process.kill(found.pid, signal);
    } catch {
      // ESRCH: gone by itself. EPERM: another user's, counted as left.
    }
  };
  const sendGroup = (members: readonly Process[], signal: NodeJS.Signals) => {
    const group = tree.leader?.session;
    // The group's number cannot be another's while a member that we have just seen is in it.
    if (
      group === undefined ||
      group <= 1 ||
      !members.some((member) => member.group === group && isSame(table.read(member.pid), member))
    )
      return;
    stale = true;
    try {
      process.kill(-group, signal);
    } catch {
      // as above
    }
  };
  const others = (members: readonly Process[]) => members.filter((member) => !isShim(member));

  // Listed first, so that children are known before their parents die and they are handed to init.
  let members = await look();
  if (others(members).length > 0 && graceMs > 0) {
    sendGroup(members, "SIGTERM");
    for (const member of others(members)) {
      if (member.group === tree.leader?.session) count(member);
      else send(member, "SIGTERM");
      if (member.state === "T") send(member, "SIGCONT"); // a stopped process hears TERM only once it goes on
    }
    const graceEndsAt = performance.now() + graceMs;
    while (others(members).length > 0 && performance.now() < graceEndsAt) {
      await delay(Math.min(Math.max(LOOK_EVERY_MS, 2 * lookMs), Math.max(1, graceEndsAt - performance.now())));
      members = await look();
    }
  }

  const killEndsAt = performance.now() + KILL_BUDGET_MS;
  const recordBudgetMs = tree.recorder ? RECORD_BUDGET_MS : 0;
  let proof = false;
  for (;;) {
    if (others(members).length > 0) {
      freeze(tree.cgroup, true);
      let empty = 0;
      for (let round = 0; round < ROUNDS && empty < 2 && performance.now() < killEndsAt - recordBudgetMs; round++) {
        // The stop is not instantaneous on another core, so one list is not enough: what is forked meanwhile is in the next.
        sendGroup(members, "SIGSTOP");
        for (const member of others(members)) if (member.group !== tree.leader?.session) send(member, "SIGSTOP");
        members = await look();
        empty = others(members).length === 0 ? empty + 1 : 0;
        for (const member of others(members)) send(member, "SIGKILL");
        if (round > 2) await delay(Math.min(LOOK_EVERY_MS, 2 * round)); // the killed need the processor to go away
      }
      freeze(tree.cgroup, false);
    }
    if (stale) members = await look();
    const shim = members.find(isShim);
    // While the stopped shim is a subreaper, all that ran away is its child; once it is gone they are init's.
    proof = tree.reaper && shim !== undefined && others(members).length === 0;
    if (shim === undefined) break;
    send(shim, "SIGCONT");
    // Met between its ticket and its fork, the shim still starts the command: then all this once more.
    const recordEndsAt = Math.min(performance.now() + RECORD_BUDGET_MS, killEndsAt);
    for (let waits = 1; isSame(table.read(shim.pid), shim) && performance.now() < recordEndsAt; waits++) {
      await delay(3);
      if (waits % 10 === 0 && others((members = await look())).length > 0) break;
    }
    if (!isSame(table.read(shim.pid), shim)) break;
    if (others(members).length === 0 || performance.now() >= killEndsAt - recordBudgetMs) {
      send(shim, "SIGKILL");
      break;
    }
  }
  // What was empty from the first list on, and signalled by nobody, needs no other list.
  stale = !(quiet && members.length === 0 && seen.size === 0);

  // Nothing may stay behind stopped, and nothing at all: the last pass, and the proof.
  for (let round = 0; ; round++) {
    if (stale || round > 0) members = await look();
    if (members.length === 0) {
      const cgroupEmpty = tree.cgroup === null ? null : isCgroupEmpty(tree.cgroup);
      proof = cgroupEmpty ?? (proof || quiet);
      // A cgroup lets go of what was killed a moment after the table has: on a busy machine that moment is long.
      if (proof || round >= (cgroupEmpty === false ? EMPTYING_ROUNDS : 5)) break;
    }
    for (const member of members) send(member, "SIGKILL");
    // The recorder has ended by now, so the kernel may end what forks faster than it can be listed.
    if (round > 0) killCgroup(tree.cgroup);
    if (performance.now() >= killEndsAt) break;
    await delay(Math.min(2 + round, LOOK_EVERY_MS));
  }
  return {
    killed: signalled.size,
    left: members.length,
    proof: proof && members.length === 0 ? "proved_empty" : "not_proved",
  };
}
