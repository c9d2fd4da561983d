/** What goes wrong, by kind and by chance. Each strike has a name, `crash#3`, so that a failure can be looked for without it. */
import type { Chance } from "./chance.ts";

export const FAULT_KINDS = [
  /** The daemon dies, or is stopped and replaced, before or after a call of a port. */
  "crash",
  /** It dies between two statements of an operation, before its commit or after it. */
  "cut",
  /** It dies when some calls of a group are committed and none is answered. */
  "torn",
  /** The writer dies: what was on its way may be stored, and the daemon starts anew. */
  "writer",
  "slow_call",
  "slow_disk",
  "full_store",
  "full_disk",
  /** A call that reads or writes an attempt's folder fails. */
  "bad_disk",
  "away",
  "lost_answer",
  "lost_poke",
  "repeated_poke",
  "lost_bell",
  "shim",
  "agent",
  "suspend",
  "clock",
  "reboot",
  "spawner",
  "stuck_spawner",
  "stall",
  "stop",
  /** A PostgreSQL server ends at once, and comes back. */
  "server",
  /** A connection that listens to it breaks. */
  "deaf_server",
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

export interface Faults {
  /** Whether it goes wrong here. */
  strikes(kind: FaultKind, probability: number): boolean;
  /** The chance that says how, and when the next one of those comes that are planned. */
  of(kind: FaultKind): Chance;
  /** Names of all that went wrong. */
  readonly struck: readonly string[];
  /** Nothing goes wrong any more. */
  readonly over: boolean;
  /** From now on nothing goes wrong any more. */
  end(): void;
}

/**
 * @param without kinds and single strikes that do not happen; what is drawn for the others stays the same
 * @param trace called with each name
 */
export function createFaults(chance: Chance, without: ReadonlySet<string>, trace: (name: string) => void): Faults {
  const sources = new Map(FAULT_KINDS.map((kind) => [kind, { chance: chance.fork(kind), count: 0 }]));
  const struck: string[] = [];
  let over = false;
  const sourceOf = (kind: FaultKind) => {
    const source = sources.get(kind);
    if (source === undefined) throw new Error(`no faults of the kind ${kind}`);
    return source;
  };
  return {
    strikes(kind, probability) {
      if (over) return false;
      const source = sourceOf(kind);
      if (!source.chance.hit(probability)) return false;
      const name = `${kind}#${++source.count}`;
      if (without.has(kind) || without.has(name)) return false;
      struck.push(name);
      trace(name);
      return true;
    },
    of: (kind) => sourceOf(kind).chance,
    struck,
    get over() {
      return over;
    },
    end() {
      over = true;
    },
  };
}
