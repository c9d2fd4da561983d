/** Accounts and their holds: who may work under which login, and until when not (ADR 0012). */
import { AppError, ensure } from "../core/errors.ts";
import { isLimit, limitEnd, statusUnder, type LimitClass } from "../core/limit-end.ts";
import type { Limits } from "../core/limits.ts";
import type { AccountDraft, AccountView } from "../core/ports.ts";
import type { AccountRecord, HoldRecord } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import type { Provider } from "../core/target.ts";
import { journal } from "./journal.ts";
import { all, finish, many, one, operation, read, readInstant, runAll, type Steps } from "./operation.ts";
import { toAccount, toHold, type AccountRow, type Row } from "./rows.ts";
import { advisoryLock, forUpdate, jsonList, sql, storeNow, type Sql } from "./sql.ts";
import { makeReady } from "./steps.ts";

/** Holds that are on: not cleared, not over. */
const active = sql`cleared_at is null and (until_at is null or until_at > ${storeNow})`;

const noAccount = (accountId: string): AppError =>
  new AppError("not_found", "account_not_found", `there is no account ${accountId}`, {
    hint: "drover account ls shows them; drover account add PROVIDER NAME makes one.",
  });

/** Name of a provider's account that is the user's own login. */
const DEFAULT = "default";
const isDefault = (accountId: string): boolean => accountId.endsWith(`:${DEFAULT}`);

/** Events are numbered on where a subject of the same name left off. */
const lastNumber = (id: string, kind: HoldRecord["subjectKind"] = "account"): Sql =>
  sql`(select coalesce(max(number), 0) from events where subject_kind = ${kind} and subject_id = ${id})`;

/** Makes the row of a user's own login, which is there without one until something is to be kept about it. */
const insertDefault = (accountId: string): Sql => {
  const [provider = ""] = accountId.split(":");
  return sql`insert into accounts (id, provider, name, home, enabled, status, event_number, created_at)
      values (${accountId}, ${provider}, ${DEFAULT}, null, 1, 'unknown', ${lastNumber(accountId)}, ${storeNow}) on conflict (id) do nothing`;
};

/** Reads an account under its lock; the user's own login gets its row. AppError `account_not_found`. */
function* lockAccount(accountId: string): Steps<{ now: number; account: AccountRow }> {
  if (isDefault(accountId)) yield* all(insertDefault(accountId));
  const [clock, rows] = yield* many<[{ now: number }, Row]>(
    readInstant,
    sql`select * from accounts where id = ${accountId} ${forUpdate}`,
  );
  const now = clock[0]?.now;
  ensure(now !== undefined, "the store has a clock");
  if (rows[0] === undefined) throw noAccount(accountId);
  return { now, account: toAccount(rows[0]) };
}

/** A new account as statements. @param managedBy the file that it is declared in. Errors: AppError conflict `name_taken`. */
export function* newAccount(input: AccountDraft, managedBy: string | null): Steps<Sql[]> {
  const id = `${input.provider}:${input.name}`;
  const [clock, rows, numbers] = yield* many<[{ now: number }, Row, { n: number }]>(
    readInstant,
    sql`select * from accounts where id = ${id}`,
    sql`select ${lastNumber(id)} as n`,
  );
  const now = clock[0]?.now ?? 0;
  if (rows[0] !== undefined)
    throw new AppError("conflict", "name_taken", `there is already an account ${id}`, {
      hint: `Choose another name, or remove it first: drover account rm ${id}`,
    });
  const log = journal("account", id, Number(numbers[0]?.n ?? 0), now);
  log.add("account.added", { home: input.home });
  return [
    sql`insert into accounts (id, provider, name, home, enabled, status, env, secrets, managed_by, created_at)
        values (${id}, ${input.provider}, ${input.name}, ${input.home}, 1, 'unknown', ${JSON.stringify(input.env)}, ${JSON.stringify(input.secrets)}, ${managedBy}, ${now})`,
    ...(input.cap === null
      ? []
      : [
          sql`insert into resources (key, limit_value, managed_by, created_at) values (${`account:${id}`}, ${input.cap}, ${managedBy}, ${now})
              on conflict (key) do update set limit_value = excluded.limit_value, managed_by = excluded.managed_by`,
        ]),
    ...log.writes(),
  ];
}

export const addAccount = operation("accounts.add", function* (input: AccountDraft): Steps<AccountRecord> {
  yield* runAll(...(yield* newAccount(input, null)));
  const made = yield* one<Row>(sql`select * from accounts where id = ${`${input.provider}:${input.name}`}`);
  ensure(made, "an account that was just made is there");
  return toAccount(made);
});

/** Another folder, other variables or another cap for an account, as statements. Errors: AppError not_found `account_not_found`. */
export function* changedAccount(input: AccountDraft, managedBy: string | null, keepsCap: boolean): Steps<Sql[]> {
  const { now, account } = yield* lockAccount(`${input.provider}:${input.name}`);
  const log = journal("account", account.id, account.eventNumber, now);
  log.add("account.edited", { home: input.home });
  const cap = `account:${account.id}`;
  const capped =
    input.cap === null
      ? sql`delete from resources where key = ${cap}`
      : sql`insert into resources (key, limit_value, managed_by, created_at) values (${cap}, ${input.cap}, ${managedBy}, ${now})
          on conflict (key) do update set limit_value = excluded.limit_value, managed_by = excluded.managed_by`;
  return [
    sql`update accounts set home = ${input.home}, env = ${JSON.stringify(input.env)}, secrets = ${JSON.stringify(input.secrets)}, managed_by = ${managedBy}
        where id = ${account.id}`,
    ...(keepsCap ? [] : [capped]),
    ...log.writes(),
  ];
}

const providerHoldsQuery = sql`select * from holds where subject_kind = 'provider' and ${active} order by subject_id, source`;

const viewQueries = (accountId: string | null): [Sql, Sql, Sql, Sql, Sql] => {
  const of = (column: Sql) => (accountId === null ? sql`` : sql`and ${column} = ${accountId}`);
  return [
    sql`select * from accounts where 1 = 1 ${of(sql`id`)} order by id`,
    sql`select * from holds where subject_kind = 'account' and ${active} ${of(sql`subject_id`)} order by subject_id, source`,
    sql`select account_id, count(*) as n from attempts where finished_at is null and account_id is not null ${of(sql`account_id`)} group by account_id`,
    sql`select key, limit_value from resources where key like 'account:%' order by key`,
    providerHoldsQuery,
  ];
};

function viewsOf([accounts, holds, used, caps, ofProviders]: readonly [
  readonly Row[],
  readonly Row[],
  readonly Row[],
  readonly Row[],
  readonly Row[],
]): AccountView[] {
  return accounts.map((row) => {
    const account = toAccount(row);
    const cap = caps.find((one) => one["key"] === `account:${account.id}`);
    return {
      account,
      holds: holds.filter((one) => one["subject_id"] === account.id).map(toHold),
      providerHolds: ofProviders.filter((one) => one["subject_id"] === account.provider).map(toHold),
      active: Number(used.find((one) => one["account_id"] === account.id)?.["n"] ?? 0),
      cap: cap === undefined ? null : (cap["limit_value"] as number),
    };
  });
}

export const getAccount = read("accounts.get", function* (input: { accountId: string }): Steps<AccountView | null> {
  const found = yield* many<[Row, Row, Row, Row, Row]>(...viewQueries(input.accountId));
  return viewsOf(found)[0] ?? null;
});

export const listAccounts = read("accounts.list", function* (_: Record<string, never>): Steps<AccountView[]> {
  return viewsOf(yield* many<[Row, Row, Row, Row, Row]>(...viewQueries(null)));
});

export const enableAccount = operation(
  "accounts.enable",
  function* (input: { accountId: string; enabled: boolean }): Steps<AccountRecord> {
    const { now, account } = yield* lockAccount(input.accountId);
    if (account.enabled === input.enabled) return account;
    const log = journal("account", account.id, account.eventNumber, now);
    log.add(input.enabled ? "account.enabled" : "account.disabled");
    yield* finish(
      sql`update accounts set enabled = ${input.enabled ? 1 : 0} where id = ${account.id}`,
      ...log.writes(),
    );
    return { ...account, enabled: input.enabled };
  },
);

const hold = (
  kind: HoldRecord["subjectKind"],
  id: string,
  source: string,
  untilAt: number | null,
  reason: string,
  now: number,
): Sql =>
  sql`insert into holds (subject_kind, subject_id, until_at, reason, source, created_at)
      values (${kind}, ${id}, ${untilAt}, ${reason}, ${source}, ${now})
      on conflict (subject_kind, subject_id, source) do update set until_at = excluded.until_at, reason = excluded.reason,
        cleared_at = null, created_at = excluded.created_at`;

export const holdAccount = operation(
  "accounts.hold",
  function* (input: { accountId: string; untilAt: number | null; reason: string }): Steps<AccountRecord> {
    const { now, account } = yield* lockAccount(input.accountId);
    const log = journal("account", account.id, account.eventNumber, now);
    log.add("account.held", { untilAt: input.untilAt, reason: input.reason, source: "person" });
    yield* finish(hold("account", account.id, "person", input.untilAt, input.reason, now), ...log.writes());
    return account;
  },
);

/** One change of a provider at a time: it has no row that could be locked. */
function* lockProvider(provider: string): Steps<{ now: number; number: number }> {
  yield* all(advisoryLock(1)); // that of the admission pass
  const [clock, numbers] = yield* many<[{ now: number }, { n: number }]>(
    readInstant,
    sql`select ${lastNumber(provider, "provider")} as n`,
  );
  return { now: clock[0]?.now ?? 0, number: Number(numbers[0]?.n ?? 0) };
}

const providerHoldsOf = (provider: string): Sql =>
  sql`select * from holds where subject_kind = 'provider' and subject_id = ${provider} and ${active} order by source`;

export const holdProvider = operation(
  "accounts.holdProvider",
  function* (input: { provider: Provider; untilAt: number | null; reason: string }): Steps<HoldRecord[]> {
    const { provider, untilAt, reason } = input;
    const { now, number } = yield* lockProvider(provider);
    const log = journal("provider", provider, number, now);
    log.add("provider.held", { untilAt, reason, source: "person" });
    yield* runAll(hold("provider", provider, "person", untilAt, reason, now), ...log.writes());
    return (yield* all<Row>(providerHoldsOf(provider))).map(toHold);
  },
);

export const releaseProvider = operation("accounts.releaseProvider", function* (input: { provider: Provider }): Steps<{
  ended: number;
}> {
  const { now, number } = yield* lockProvider(input.provider);
  const ended = (yield* all<Row>(providerHoldsOf(input.provider))).length;
  if (ended === 0) return { ended };
  const log = journal("provider", input.provider, number, now);
  log.add("provider.released");
  yield* finish(
    sql`update holds set cleared_at = ${now} where subject_kind = 'provider' and subject_id = ${input.provider} and cleared_at is null`,
    ...log.writes(),
  );
  return { ended };
});

export const providerHolds = read("accounts.providerHolds", function* (_: Record<string, never>): Steps<HoldRecord[]> {
  return (yield* all<Row>(providerHoldsQuery)).map(toHold);
});

/** Steps that wait for their account, or for one of its limits to be over. */
function* wakeWaiting(accountId: string, now: number): Steps<{ woken: number; writes: Sql[] }> {
  const waiting = yield* all<Row>(
    sql`select id, run_id from steps where account_id = ${accountId} and status = 'waiting' and reason in ('limit', 'account') order by id`,
  );
  if (waiting.length === 0) return { woken: 0, writes: [] };
  // Lock order: runs, then steps; what changed between the two reads is left out.
  const runs = yield* all<Row>(
    sql`select * from runs where id in (${jsonList(waiting.map((row) => row["run_id"] as string))}) order by id ${forUpdate}`,
  );
  const still = yield* all<Row>(
    sql`select id, run_id from steps where id in (${jsonList(waiting.map((row) => row["id"] as string))})
        and status = 'waiting' and reason in ('limit', 'account') order by id ${forUpdate}`,
  );
  return { woken: still.length, writes: makeReady(still, runs, now) };
}

export const releaseAccount = operation("accounts.release", function* (input: { accountId: string }): Steps<{
  account: AccountRecord;
  woken: number;
}> {
  // The account first: a step that begins to wait for it meanwhile is seen, or has a hold of its own.
  const { now, account } = yield* lockAccount(input.accountId);
  const { woken, writes } = yield* wakeWaiting(account.id, now);
  const log = journal("account", account.id, account.eventNumber, now);
  log.add("account.released", { woken });
  yield* finish(
    sql`update holds set cleared_at = ${now} where subject_kind = 'account' and subject_id = ${account.id} and cleared_at is null`,
    sql`update accounts set status = 'unknown', limit_ends = 0 where id = ${account.id}`,
    ...writes,
    ...log.writes(),
  );
  return { account: { ...account, status: "unknown", limitEnds: 0 }, woken };
});

/** The removal of an account. Errors: AppError not_found `account_not_found`, conflict `account_in_use`. */
export function* removedAccount(accountId: string): Steps<Sql[]> {
  yield* all(advisoryLock(1)); // no grant under it meanwhile: the lock of the admission pass
  const { now, account } = yield* lockAccount(accountId);
  const [runs, loops] = yield* many<[Row, Row]>(
    sql`select id from runs where account_wish = ${account.id} and finished_at is null order by id limit 1`,
    sql`select name, target from loops where archived_at is null order by name`,
  );
  const loop = loops.find((row) => {
    const target = JSON.parse(row["target"] as string) as { kind: string; provider?: string; account?: string };
    return target.kind === "agent" && `${target.provider}:${target.account}` === account.id;
  });
  const user = runs[0] === undefined ? null : `the run ${runs[0]["id"]}`;
  const named = user ?? (loop === undefined || isDefault(account.id) ? null : `the loop ${loop["name"]}`);
  if (named !== null)
    throw new AppError("conflict", "account_in_use", `the account ${account.id} is used by ${named}`, {
      hint: "Give that another account or end it first; `drover account disable` keeps new work away.",
    });
  const log = journal("account", account.id, account.eventNumber, now);
  log.add("account.removed");
  return [
    ...log.writes(),
    sql`delete from holds where subject_kind = 'account' and subject_id = ${account.id}`,
    sql`delete from resources where key = ${`account:${account.id}`}`,
    sql`delete from accounts where id = ${account.id}`,
  ];
}

export const removeAccount = operation("accounts.remove", function* (input: { accountId: string }): Steps<void> {
  yield* finish(...(yield* removedAccount(input.accountId)));
});

/** The limits of an account that are on, and until when. Read under its lock. */
function* limitsOn(accountId: string): Steps<ReadonlyMap<LimitClass, number | null>> {
  const rows = yield* all<Row>(
    sql`select source, until_at from holds where subject_kind = 'account' and subject_id = ${accountId} and source <> 'person' and ${active} order by source`,
  );
  return new Map(rows.map((row) => [row["source"] as LimitClass, row["until_at"] as number | null]));
}

/**
 * Its limits are over. Nothing starts while one is on, so what answers then was at work before and proves nothing; a login
 * that was refused is mended by a person.
 */
function* provedOk(account: AccountRow, now: number): Steps<Sql[]> {
  if (account.status === "ok" && account.limitEnds === 0) return [];
  if ((yield* limitsOn(account.id)).size > 0) return [];
  const log = journal("account", account.id, account.eventNumber, now);
  if (account.status !== "ok") log.add("account.ok", { was: account.status });
  return [sql`update accounts set status = 'ok', limit_ends = 0 where id = ${account.id}`, ...log.writes()];
}

export const accountAnswered = operation("accounts.answered", function* (input: { accountId: string }): Steps<void> {
  const [clock, rows] = yield* many<[{ now: number }, Row]>(
    readInstant,
    sql`select * from accounts where id = ${input.accountId} ${forUpdate}`,
  );
  if (rows[0] === undefined) return;
  const writes = yield* provedOk(toAccount(rows[0]), clock[0]?.now ?? 0);
  if (writes.length > 0) yield* finish(...writes);
});

/**
 * What the end of an attempt means for its account. `untilAt` undefined: no limit; null: until it is released.
 * @param key the same key gives the same jitter
 */
export function* endUnder(
  accountId: string,
  outcome: Outcome,
  key: string,
  limits: Limits,
  now: number,
): Steps<{ untilAt: number | null | undefined; writes: Sql[] }> {
  const failed = outcome.kind === "failed" || outcome.kind === "timed_out";
  const limited = failed && isLimit(outcome.class) ? outcome.class : null;
  if (limited !== null && isDefault(accountId)) yield* all(insertDefault(accountId));
  const row = yield* one<Row>(sql`select * from accounts where id = ${accountId} ${forUpdate}`);
  if (row === undefined) return { untilAt: undefined, writes: [] };
  const account = toAccount(row);
  const used = sql`update accounts set last_used_at = ${now} where id = ${accountId}`;
  if (limited === null) {
    const proved = outcome.kind === "succeeded" ? yield* provedOk(account, now) : [];
    return { untilAt: undefined, writes: [used, ...proved] };
  }
  const on = yield* limitsOn(accountId);
  const resetAt = outcome.agent?.resetAt ?? null;
  const { limitEnds } = account;
  const end = limitEnd({ class: limited, resetAt, limitEnds, heldUntil: on.get(limited) ?? null, key }, limits, now);
  const source = outcome.agent?.resetSource;
  const reason = [outcome.message ?? limited, ...(source ? [`(${source})`] : [])].join(" ");
  const status = statusUnder([limited, ...on.keys()]);
  const log = journal("account", account.id, account.eventNumber, now);
  log.add("account.held", { untilAt: end.untilAt, reason, source: limited });
  return {
    untilAt: end.untilAt,
    writes: [
      used,
      sql`update accounts set status = ${status}, limit_ends = ${end.limitEnds} where id = ${accountId}`,
      hold("account", accountId, limited, end.untilAt, reason, now),
      ...log.writes(),
    ],
  };
}
