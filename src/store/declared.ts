/** What files declare, made so in one transaction: loops, accounts and limits, all or nothing. */
import { AppError, ensure } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { DeclaredChanges, DeclaredRest, OwnedLoop } from "../core/ports.ts";
import type { LoopRecord } from "../core/records.ts";
import { changedAccount, newAccount, removedAccount } from "./accounts.ts";
import { archived, changedLoop, changedMeanwhile, loadsOf, newLoop } from "./loops.ts";
import { requireDefinition } from "./definitions.ts";
import { journal } from "./journal.ts";
import { all, instant, many, operation, read, runAll, type Context, type Steps } from "./operation.ts";
import { toAccount, toLoop, type Row } from "./rows.ts";
import { advisoryLock, forUpdate, jsonList, sql, type Sql } from "./sql.ts";

/** Loops read or written in one round trip: what is held at a time stays small, however many there are. */
const AT_ONCE = 200;

const slices = <T>(list: readonly T[]): readonly (readonly T[])[] =>
  Array.from({ length: Math.ceil(list.length / AT_ONCE) }, (_, i) => list.slice(i * AT_ONCE, (i + 1) * AT_ONCE));

// --- What is there -------------------------------------------------------------------------------------------------------

export const declaredLoops = read("declared.loops", function* (input: { names: readonly string[] }): Steps<
  LoopRecord[]
> {
  const found: LoopRecord[] = [];
  for (const names of slices(input.names))
    found.push(
      ...(yield* all<Row>(
        sql`select * from loops where archived_at is null and name in (${jsonList(names)}) order by name`,
      )).map(toLoop),
    );
  return found;
});

export const ownedLoops = read("declared.owned", function* (input: { from: string; to: string }): Steps<OwnedLoop[]> {
  const rows = yield* all<Row>(
    sql`select id, name, managed_by, revision from loops
          where managed_by >= ${input.from} and managed_by < ${input.to} and archived_at is null order by managed_by, name`,
  );
  return rows.map((row) => ({
    loopId: row["id"] as string,
    name: row["name"] as string,
    managedBy: row["managed_by"] as string,
    revision: row["revision"] as number,
  }));
});

export const declaredRest = read("declared.rest", function* (_: Record<string, never>): Steps<DeclaredRest> {
  const [accounts, limits] = yield* many<[Row, Row]>(
    sql`select * from accounts order by id`,
    sql`select key, limit_value, managed_by from resources where key not like 'host:%' order by key`,
  );
  return {
    accounts: accounts.map((row) => ({ account: toAccount(row), managedBy: row["managed_by"] as string | null })),
    limits: limits.map((row) => ({
      resource: row["key"] as string,
      limit: row["limit_value"] as number,
      managedBy: row["managed_by"] as string | null,
    })),
  };
});

// --- Making it so ----------------------------------------------------------------------------------------------------------

/** Every loop is as it was when the decision was made. */
function* checkSeen(seen: DeclaredChanges["seen"]): Steps<void> {
  for (const some of slices(seen)) {
    const rows = yield* all<Row>(
      sql`select id, name, revision, archived_at from loops where id in (${jsonList(some.map(({ loopId }) => loopId))}) order by id ${forUpdate}`,
    );
    const now = new Map(rows.map((row) => [row["id"], row]));
    for (const { loopId, name, revision } of some) {
      const row = now.get(loopId);
      if (row === undefined || row["archived_at"] !== null || row["revision"] !== revision)
        throw changedMeanwhile(name);
    }
  }
}

/** Nobody has taken the names of what is to be made. */
function* checkFree(names: readonly string[]): Steps<void> {
  for (const some of slices(names)) {
    const [taken] = yield* all<Row>(
      sql`select name from loops where archived_at is null and name in (${jsonList(some)}) order by name limit 1`,
    );
    if (taken !== undefined)
      throw new AppError("conflict", "changed_meanwhile", `the loop ${taken["name"]} was made meanwhile`, {
        hint: "Nothing was done: look at it and try again.",
      });
  }
}

/** Accounts and limits are as they were. */
function* checkRest(changes: DeclaredChanges): Steps<void> {
  const { accounts, limits } = changes;
  const [rows, resources] = yield* many<[Row, Row]>(
    sql`select id, home, env, secrets from accounts order by id`,
    sql`select key, limit_value from resources order by key`,
  );
  const stale = (what: string) =>
    new AppError("conflict", "changed_meanwhile", `${what} was changed meanwhile`, {
      hint: "Nothing was done: look at it and try again.",
    });
  for (const { before } of [...accounts.change, ...accounts.remove.map((one) => ({ before: one }))]) {
    const id = `${before.provider}:${before.name}`;
    const row = rows.find((one) => one["id"] === id);
    const same =
      row !== undefined &&
      row["home"] === before.home &&
      row["env"] === JSON.stringify(before.env) &&
      row["secrets"] === JSON.stringify(before.secrets);
    if (!same) throw stale(`the account ${id}`);
  }
  for (const { resource, before } of [...limits.set, ...limits.remove]) {
    const row = resources.find((one) => one["key"] === resource);
    if ((row?.["limit_value"] ?? null) !== before) throw stale(`the limit of ${resource}`);
  }
}

function* addLoops(add: DeclaredChanges["loops"]["add"], ctx: Context, now: number, limits: Limits) {
  const made: { name: string; loopId: string }[] = [];
  for (const some of slices(add)) {
    const writes: Sql[] = [];
    for (const { draft, paused } of some) {
      yield* requireDefinition(draft.target);
      const loop = newLoop(draft, ctx, now, limits, paused);
      writes.push(...loop.writes);
      made.push({ name: draft.name, loopId: loop.id });
    }
    yield* runAll(...writes);
  }
  return made;
}

function* changeLoops(
  change: DeclaredChanges["loops"]["change"],
  ctx: Context,
  now: number,
  limits: Limits,
): Steps<void> {
  for (const some of slices(change)) {
    const ids = some.map(({ loopId }) => loopId);
    const rows = yield* all<Row>(sql`select * from loops where id in (${jsonList(ids)}) order by id`);
    const loops = new Map(rows.map((row) => [row["id"] as string, toLoop(row)]));
    const loads = yield* loadsOf(ids);
    const writes: Sql[] = [];
    for (const { loopId, change: to, managedBy } of some) {
      const [loop, load] = [loops.get(loopId), loads.get(loopId)];
      ensure(loop && load, "a loop that was seen is there");
      writes.push(
        ...(yield* changedLoop(loop, load, to, ctx, now, limits)),
        sql`update loops set managed_by = ${managedBy} where id = ${loopId}`,
      );
    }
    yield* runAll(...writes);
  }
}

/** Loops that stay as they are and are declared by another file from now on. */
function* adoptLoops(adopt: DeclaredChanges["loops"]["adopt"], now: number): Steps<void> {
  for (const some of slices(adopt)) {
    const rows = yield* all<Row>(
      sql`select id, event_number, managed_by from loops where id in (${jsonList(some.map(({ loopId }) => loopId))}) order by id`,
    );
    const loops = new Map(rows.map((row) => [row["id"], row]));
    yield* runAll(
      ...some.flatMap(({ loopId, managedBy }) => {
        const row = loops.get(loopId);
        ensure(row, "a loop that was seen is there");
        const log = journal("loop", loopId, row["event_number"] as number, now);
        log.add("loop.adopted", { from: row["managed_by"], by: managedBy });
        return [
          sql`update loops set managed_by = ${managedBy}, updated_at = ${now} where id = ${loopId}`,
          ...log.writes(),
        ];
      }),
    );
  }
}

function* archiveLoops(ids: readonly string[], now: number): Steps<void> {
  for (const some of slices(ids)) {
    const rows = yield* all<Row>(sql`select * from loops where id in (${jsonList(some)}) order by id`);
    yield* runAll(...rows.flatMap((row) => archived(toLoop(row), now)));
  }
}

export const applyDeclared = operation(
  "declared.apply",
  function* (
    input: { changes: DeclaredChanges; limits: Limits },
    ctx,
  ): Steps<{
    made: readonly { readonly name: string; readonly loopId: string }[];
  }> {
    const { changes, limits } = input;
    const { loops, accounts } = changes;
    const touches = [
      ...accounts.add,
      ...accounts.change,
      ...accounts.remove,
      ...changes.limits.set,
      ...changes.limits.remove,
    ];
    // First, because whoever grants holds it while it looks at limits and accounts.
    if (touches.length > 0) yield* all(advisoryLock(1));
    const now = yield* instant();
    yield* checkSeen(changes.seen);
    yield* checkRest(changes);
    for (const { draft, managedBy } of accounts.add) yield* runAll(...(yield* newAccount(draft, managedBy)));
    for (const { draft, managedBy, keepsCap } of accounts.change)
      yield* runAll(...(yield* changedAccount(draft, managedBy, keepsCap)));
    yield* archiveLoops(
      loops.archive.map(({ loopId }) => loopId),
      now,
    );
    // Behind what goes: its names are free.
    yield* checkFree(loops.add.map(({ draft }) => draft.name));
    yield* changeLoops(loops.change, ctx, now, limits);
    yield* adoptLoops(loops.adopt, now);
    const made = yield* addLoops(loops.add, ctx, now, limits);
    yield* runAll(
      ...changes.limits.set.map(
        ({ resource, limit, managedBy }) =>
          sql`insert into resources (key, limit_value, managed_by, created_at) values (${resource}, ${limit}, ${managedBy}, ${now})
              on conflict (key) do update set limit_value = excluded.limit_value, managed_by = excluded.managed_by`,
      ),
      ...changes.limits.remove.map(({ resource }) => sql`delete from resources where key = ${resource}`),
    );
    // Last, when no loop names them any more.
    for (const { provider, name } of accounts.remove) yield* runAll(...(yield* removedAccount(`${provider}:${name}`)));
    return { made };
  },
);
