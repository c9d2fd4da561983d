import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import type { EndReport } from "../core/ports.ts";
import type { ProcessTable } from "./processes.ts";
import { ATTEMPT_MARK, ERRAND_MARK, isAlive, type Process } from "./processes.ts";
import { endTree } from "./tree.ts";

/** A short command on drover's own account: git, a check, a hook, a command that prints a secret. */
export interface Errand {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly input?: string;
  /** For the whole tree, draining of outputs included. */
  readonly timeoutMs: number;
  /** Bytes of each output that are kept: the first with `head`, else the last. */
  readonly keepBytes: number;
  readonly keep: "head" | "tail";
  /** From TERM to KILL when the limit ends it, or `unwanted`. */
  readonly graceMs?: number;
  /** Ends its whole tree when nobody wants it any more. */
  readonly unwanted?: AbortSignal;
}

/** How an errand ended. Nothing of it is left, as far as `report` can say. */
export interface ErrandEnd {
  /** null when the limit, `unwanted`, a signal or a failure to start ended it. */
  readonly exit: number | null;
  /** The limit ended it. */
  readonly timedOut: boolean;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** More was printed than kept. */
  readonly cut: boolean;
  /** The end of the standard output was seen. Not when a helper still holds it, or the limit ended it. */
  readonly whole: boolean;
  /** Why it could not be started. */
  readonly fault: string | null;
  readonly report: EndReport | null;
}

/**
 * What the command itself printed, or null where nobody can know whether that is all of it. When it has ended, it has said
 * all it will, and that is read; what may still come is of something that it left behind and that holds the pipe, which as
 * far as anybody can tell is none of its answer once a line is complete. A line without its end may go on there.
 */
export function ownOutput({ whole, stdout }: Pick<ErrandEnd, "whole" | "stdout">): Buffer | null {
  return whole || stdout.at(-1) === NEWLINE ? stdout : null;
}
const NEWLINE = 10;

/** What is still in a pipe when the command has ended comes within this time; a helper that holds the pipe gets no more. */
const DRAIN_MS = 200;

/**
 * Runs an errand to its end or its limit, whatever helpers it leaves: they are ended too and cannot delay the answer. Never throws.
 * @param sweep whether what is left after a timely end is looked for; a list of all processes, so not for each call of git
 */
export function runErrand(errand: Errand, table: ProcessTable, sweep = true): Promise<ErrandEnd> {
  const nobody = new AbortController();
  const ended = run(errand, table, sweep, nobody.signal);
  underWay.set(ended, nobody);
  const forget = () => underWay.delete(ended);
  ended.then(forget, forget);
  return ended;
}

/** Errands of this process that have not ended. */
const underWay = new Map<Promise<ErrandEnd>, AbortController>();

/** Ends every errand of this process, with its whole tree: nobody waits for them any more. */
export async function giveUpErrands(): Promise<void> {
  while (underWay.size > 0) {
    for (const nobody of underWay.values()) nobody.abort();
    await Promise.allSettled(underWay.keys());
  }
}

async function run(errand: Errand, table: ProcessTable, sweep: boolean, givenUp: AbortSignal): Promise<ErrandEnd> {
  const id = `${makerOf(table)}.${randomUUID()}`;
  const { [ATTEMPT_MARK]: _ofAnother, ...environment } = errand.environment; // else an attempt's sweep would end us
  const stdout = keeper(errand);
  const stderr = keeper(errand);
  const forks = table.forks();
  return await new Promise((resolve) => {
    const child = spawn(errand.argv[0], errand.argv.slice(1), {
      cwd: errand.cwd,
      env: { ...environment, [ERRAND_MARK]: id },
      detached: true,
      stdio: ["pipe", "pipe", "pipe"],
    });
    // Read at once: while we have not been told of its end, the pid cannot be another's.
    const leader = child.pid === undefined ? null : table.read(child.pid);
    let timedOut = false;
    let isUnwanted = false;
    let finished = false;
    const end = async (exit: number | null, fault: string | null) => {
      if (finished) return;
      finished = true;
      clearTimeout(limit);
      errand.unwanted?.removeEventListener("abort", giveUp);
      const { pid } = child;
      // Before what is left is ended: that ends the pipe too, and says nothing about what would have come.
      const whole = child.stdout.readableEnded;
      let report: EndReport | null = null;
      const isCut = timedOut || isUnwanted;
      if (pid !== undefined && (isCut || sweep)) {
        const since = forks === null ? null : { pid, forks };
        const tree = {
          leader,
          since,
          recorder: false,
          own: [],
          mark: `${ERRAND_MARK}=${id}`,
          cgroup: null,
          reaper: false,
        };
        report = await endTree(tree, isCut ? (errand.graceMs ?? 0) : 0, table).catch(() => null);
      }
      child.stdout.destroy();
      child.stderr.destroy();
      child.stdin.destroy();
      resolve({
        exit: isCut ? null : exit,
        timedOut,
        stdout: stdout.bytes(),
        stderr: stderr.bytes(),
        cut: stdout.isCut() || stderr.isCut(),
        whole,
        fault,
        report,
      });
    };
    const limit = setTimeout(() => {
      timedOut = true;
      void end(null, null);
    }, errand.timeoutMs);
    const giveUp = () => {
      isUnwanted = true;
      void end(null, null);
    };
    errand.unwanted?.addEventListener("abort", giveUp);
    givenUp.addEventListener("abort", giveUp);
    if (errand.unwanted?.aborted === true) giveUp();
    child.stdout.on("data", stdout.add);
    child.stderr.on("data", stderr.add);
    // Before anything is written: a child that is gone already answers with EPIPE.
    child.stdin.on("error", () => {});
    child.stdout.on("error", () => {});
    child.stderr.on("error", () => {});
    child.on("error", (error) => void end(null, error.message));
    child.on("exit", (exit) => {
      // When we were busy for that long, the time is over before anybody has looked at the pipes: they are looked at
      // between a timer and an immediate.
      const drained = setTimeout(() => setImmediate(() => void end(exit, null)), DRAIN_MS);
      child.on("close", () => {
        clearTimeout(drained);
        void end(exit, null);
      });
    });
    child.stdin.end(errand.input ?? "");
  });
}

let maker: string | null = null;

/** What names this process for as long as it lives, and no other one: its pid and its start. */
function makerOf(table: ProcessTable): string {
  maker ??= nameOf({ pid: process.pid, started: table.read(process.pid)?.started ?? "" });
  return maker;
}

const nameOf = ({ pid, started }: Pick<Process, "pid" | "started">): string =>
  `${pid}.${started.replaceAll(/[^\w:]+/g, "_")}`;

/**
 * Ends errands that outlived the process that ran them, as after its kill: nobody waits for them, and they write on.
 * @param concerns asked of each living process of such an errand; one that is told of ends with its whole errand
 */
export async function endAbandoned(
  table: ProcessTable,
  graceMs: number,
  concerns: (process: Process) => boolean,
): Promise<readonly EndReport[]> {
  const reports: EndReport[] = [];
  for (const [mark, processes] of table.snapshot().byMark) {
    const name = new RegExp(`^${ERRAND_MARK}=((\\d+)\\.[^.]+)\\.`).exec(mark);
    if (name === null) continue;
    const made = table.read(Number(name[2]));
    if (isAlive(made) && nameOf(made) === name[1]) continue;
    const alive = processes.filter(isAlive);
    if (!alive.some(concerns)) continue;
    const leader = alive.find(({ pid, session }) => pid === session) ?? null;
    const tree = { leader, since: null, recorder: false, own: [], mark, cgroup: null, reaper: false };
    reports.push(await endTree(tree, graceMs, table));
  }
  return reports;
}

/** Keeps the first or last bytes of an output in bounded memory. */
function keeper({ keepBytes, keep }: Errand) {
  let chunks: Buffer[] = [];
  let total = 0;
  let cut = false;
  return {
    add(chunk: Buffer) {
      if (keep === "head") {
        const room = keepBytes - total;
        cut ||= chunk.length > room;
        if (room <= 0) return;
        chunks.push(chunk.subarray(0, room));
        total += Math.min(room, chunk.length);
        return;
      }
      chunks.push(chunk);
      total += chunk.length;
      if (total <= 2 * keepBytes) return;
      const last = Buffer.concat(chunks).subarray(-keepBytes);
      chunks = [Buffer.from(last)];
      total = last.length;
      cut = true;
    },
    bytes: () => (keep === "head" ? Buffer.concat(chunks) : Buffer.concat(chunks).subarray(-keepBytes)),
    isCut: () => cut || total > keepBytes,
  };
}
