/** The store in memory: each call has run to its end within one step. Calls of one turn may share a commit, as in the daemon's writer. */
import type { IdKind } from "../../src/core/ids.ts";
import type { OperationTable } from "../../src/store/operation.ts";
import { openMemoryStore } from "../../src/store/sqlite.ts";
import { Crash, type CutPoint } from "../../src/store/sqlite-group.ts";
import type { Call, Called, SimStore, Watcher } from "./store.ts";
import type { Context } from "./time.ts";

/** What befalls calls of a daemon, decided by the world. */
export interface Fate {
  /** Throws a `Crash` where the process is to die. */
  cut(context: Context, point: CutPoint): void;
  /** What the disk says to calls that would write; null when it takes them. */
  refuses(context: Context): Error | null;
  /** Brings it to the disk, now or when that is slow. */
  deliver(context: Context, commit: () => void): void;
  /**
   * What happens to a group of that many calls that gets no answers: the process dies when some are committed, or the
   * writer dies, and its callers are told that nobody knows. Null when nothing happens to it.
   */
  dies(context: Context, calls: number): number | { readonly kept: boolean; readonly error: Error } | null;
}

export interface MemorySimStoreOptions {
  readonly table: OperationTable;
  readonly clock: { readonly now: () => number };
  readonly mint: (kind: IdKind, at: number) => string;
  readonly watcher: Watcher;
  readonly fate: Fate;
  /** Whether calls of one daemon and turn share a commit. */
  readonly joins: boolean;
  readonly reorder?: (rows: readonly unknown[]) => readonly unknown[];
}

type Calls = Readonly<Record<string, Readonly<Record<string, (input: unknown) => Promise<unknown>>>>>;

interface Waiting {
  readonly call: Call;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** The writer of one daemon: what waits for it, and whether a group is on its way to the disk. */
interface Writer {
  waiting: Waiting[];
  flying: boolean;
  scheduled: boolean;
}

export function createMemorySimStore(options: MemorySimStoreOptions): SimStore {
  const { watcher, fate } = options;
  /** The group that is being run. */
  let serving: { readonly calls: readonly Call[]; readonly found: unknown[] } | null = null;
  const memory = openMemoryStore({
    table: options.table,
    clock: options.clock,
    mint: options.mint,
    ...(options.reorder === undefined ? {} : { reorder: options.reorder }),
    cut(point) {
      if (serving === null) return;
      const { calls, found } = serving;
      if (point.at === "ask" && point.asks === 0) {
        const call = calls[found.length];
        const looks = call === undefined ? null : watcher.before(call);
        found.push(looks === null ? undefined : memory.look(looks));
      }
      const context = calls[0]?.context ?? null;
      if (context !== null) fate.cut(context, point);
    },
  });
  const writers = new WeakMap<Context, Writer>();
  let changes = memory.changes();

  /** Runs calls in one transaction, and looks at what it left. */
  function run(group: readonly Waiting[]): void {
    const calls = group.map(({ call }) => call);
    const found: unknown[] = [];
    serving = { calls, found };
    let answers: readonly { readonly value?: unknown; readonly error?: unknown }[];
    try {
      answers = memory.group(calls.map(({ entry, input }) => ({ operation: entry, input })));
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
      answers = calls.map(() => ({ error }));
    } finally {
      serving = null;
    }
    const called = calls.map((call, i): Called => {
      const { value, error } = answers[i] ?? {};
      return { ...call, found: found[i], answer: value ?? null, failed: error !== undefined };
    });
    const before = changes;
    changes = memory.changes();
    memory.look(watcher.after(called, changes !== before));
    for (const [i, { resolve, reject }] of group.entries()) {
      const { value, error } = answers[i] ?? {};
      if (error === undefined) resolve(value);
      else reject(error);
    }
  }

  function commit(context: Context, group: readonly Waiting[]): void {
    const refused = fate.refuses(context);
    if (refused !== null) return group.forEach(({ reject }) => reject(refused));
    const death = fate.dies(context, group.length);
    if (death === null) return run(group);
    const [kept, error] =
      typeof death === "number" ? [death, new Crash("torn")] : [death.kept ? group.length : 0, death.error];
    const unheard = () => undefined;
    if (kept > 0) run(group.slice(0, kept).map(({ call }) => ({ call, resolve: unheard, reject: unheard })));
    for (const { reject } of group) reject(error);
  }

  function flush(context: Context, writer: Writer): void {
    writer.scheduled = false;
    if (writer.flying || writer.waiting.length === 0 || !context.alive) return;
    writer.flying = true;
    const group = writer.waiting;
    writer.waiting = [];
    fate.deliver(context, () => {
      commit(context, group);
      writer.flying = false;
      flush(context, writer);
    });
  }

  return {
    call: (call) =>
      new Promise((resolve, reject) => {
        const { entry, input, context } = call;
        if (entry.access === "read") {
          const [noun = "", verb = ""] = entry.name.split(".");
          return void (memory.store as Calls)[noun]?.[verb]?.(input).then(resolve, reject);
        }
        if (context === null || !options.joins) return run([{ call, resolve, reject }]);
        const writer = writers.get(context) ?? { waiting: [], flying: false, scheduled: false };
        writers.set(context, writer);
        writer.waiting.push({ call, resolve, reject });
        if (writer.scheduled) return;
        writer.scheduled = true;
        queueMicrotask(() => flush(context, writer));
      }),
    look: async (steps) => memory.look(steps),
    busy: () => null,
    close: () => memory.close(),
  };
}
