/** The switch that the rewritten sources ask at each guard: at most one of all is taken out. */

class Endless extends Error {}

let removed: string | null = null;
let seen = new Set<string>();
let asks = 0;
let most = Number.POSITIVE_INFINITY;

const isRemoved = (id: string): boolean => {
  seen.add(id);
  // Statements of the store in memory never wait, so that no timer ends a test that asks for ever.
  if (++asks > most) throw new Endless(`without ${removed} it does not end`);
  return id === removed;
};

type Table = Readonly<Record<string, Readonly<Record<string, string>>>>;

(globalThis as { [name: symbol]: unknown })[Symbol.for("drover.guards")] = {
  without: isRemoved,
  /** A statement that is made once, as it is at each use. */
  each: <T extends object>(make: () => T): T =>
    new Proxy(make(), {
      get: (_, key) => Reflect.get(make(), key) as unknown,
      has: (_, key) => Reflect.has(make(), key),
    }),
  /** A state table that answers with what it does not list where that is taken out: id, state, event, what it becomes. */
  table: (table: Table, refused: readonly (readonly [string, string, string, string])[]): Table => {
    const at = new Map(refused.map(([id, state, event, to]) => [`${state} ${event}`, [id, to] as const]));
    const row = (state: string, events: Readonly<Record<string, string>>) =>
      new Proxy(events, {
        get(target, event) {
          const more = at.get(`${state} ${String(event)}`);
          return more !== undefined && isRemoved(more[0]) ? more[1] : target[event as string];
        },
      });
    return Object.fromEntries(Object.entries(table).map(([state, events]) => [state, row(state, events)]));
  },
};

/** Runs something without a guard; null: with all of them. Answers which were asked, and how often any was. */
export async function without(
  id: string | null,
  atMost: number,
  body: () => Promise<void>,
): Promise<{ readonly seen: ReadonlySet<string>; readonly asks: number }> {
  [removed, most, asks, seen] = [id, atMost, 0, new Set()];
  try {
    await body();
  } finally {
    [removed, most] = [null, Number.POSITIVE_INFINITY];
  }
  return { seen, asks };
}
