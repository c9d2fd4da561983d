/** From what a person typed to one account. */
import { AppError } from "../../core/errors.ts";
import type { AccountView, Store } from "../../core/ports.ts";
import type { AccountRecord, HoldRecord } from "../../core/records.ts";
import type { Provider } from "../../core/target.ts";

/** The user's own login, as long as nobody changed it and no limit was seen. */
export const untouchedDefault = (provider: Provider): AccountRecord => ({
  id: `${provider}:default`,
  provider,
  name: "default",
  home: null,
  enabled: true,
  status: "unknown",
  limitEnds: 0,
  env: {},
  secrets: {},
  lastUsedAt: null,
  createdAt: 0,
});

const viewOfDefault = (provider: Provider, providerHolds: readonly HoldRecord[]): AccountView => ({
  account: untouchedDefault(provider),
  holds: [],
  providerHolds: providerHolds.filter((hold) => hold.subjectId === provider),
  active: 0,
  cap: null,
});

function noSuchAccount(id: string, path: string, providers: readonly string[] = []): AppError {
  const [provider = "", name = ""] = id.includes(":") ? id.split(":", 2) : ["PROVIDER", id];
  return new AppError("not_found", "account_not_found", `there is no account ${JSON.stringify(id)}`, {
    path,
    hint: providers.includes(id)
      ? `${id} is a provider: \`drover agent hold ${id}\` and \`drover agent release ${id}\` are for all of its accounts.`
      : `\`drover account add ${provider} ${name}\` makes it; \`drover account ls\` lists those that there are.`,
  });
}

/** The account of a provider by its name. Errors: AppError not_found `account_not_found`. */
export async function findAccountOf(
  store: Store,
  provider: Provider,
  name: string,
  path: string,
): Promise<AccountView> {
  const found = await store.accounts.get({ accountId: `${provider}:${name}` });
  if (found !== null) return found;
  if (name === "default") return viewOfDefault(provider, await store.accounts.providerHolds({}));
  throw noSuchAccount(`${provider}:${name}`, path);
}

/** All accounts, and of each of these providers the user's own login, whether or not it has a row. */
export async function allAccounts(store: Store, providers: readonly Provider[]): Promise<readonly AccountView[]> {
  const [known, holds] = await Promise.all([store.accounts.list({}), store.accounts.providerHolds({})]);
  const ids = new Set(known.map(({ account }) => account.id));
  const untouched = providers
    .filter((provider) => !ids.has(`${provider}:default`))
    .map((one) => viewOfDefault(one, holds));
  return [...known, ...untouched].toSorted((a, b) => (a.account.id < b.account.id ? -1 : 1));
}

/**
 * An account by `PROVIDER:NAME`, or by a name that only one has.
 * Errors: AppError not_found `account_not_found`, conflict `ambiguous`.
 */
export async function findAccount(
  store: Store,
  ref: string,
  providers: readonly Provider[],
  path = "account",
): Promise<AccountView> {
  const all = await allAccounts(store, providers);
  const found = all.filter(({ account }) => account.id === ref || account.name === ref);
  const [first] = found;
  if (first === undefined) throw noSuchAccount(ref, path, providers);
  if (found.length === 1) return first;
  throw new AppError("conflict", "ambiguous", `${JSON.stringify(ref)} may mean several accounts`, {
    path,
    hint: `Say which: ${found.map(({ account }) => account.id).join(", ")}.`,
  });
}
