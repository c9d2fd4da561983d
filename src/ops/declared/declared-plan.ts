/** How what files declare differs from what the store holds: object by object, field by field, and what is to be done about it. */
import { AppError, type Problem } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import type { DeclaredRest, LoopChange, LoopDraft, OwnedLoop, Store } from "../../core/ports.ts";
import type { AccountRecord, LoopRecord } from "../../core/records.ts";
import { describeSize } from "../../core/size.ts";
import type { Target } from "../../core/target.ts";
import { holdsSecret } from "../../core/variable-names.ts";
import { settleWorktree } from "../accounts/agent-target.ts";
import type { DeclaredAccount, DeclaredLimit, DeclaredLoop, Declaration } from "./declaration.ts";
import { isOf, type Sources } from "./declared-files.ts";
import { type Form, formOfAccount, formOfLoop, type LoopDefinition, partOf } from "./declared-form.ts";
import type { Json } from "../fields.ts";
import type { StoreContext } from "../operation.ts";

/** A field that is to become another. Values that may be secrets are not in it. */
export interface FieldChange {
  readonly path: string;
  /** null: there is none. */
  readonly from: Json;
  readonly to: Json;
}

export type Action = "create" | "change" | "adopt" | "unchanged" | "delete";

/** One object and what becomes of it. */
export interface PlanItem {
  readonly kind: "loop" | "account" | "limit";
  readonly name: string;
  readonly action: Action;
  /** The file that declares it, or declared it. */
  readonly file: string;
  readonly id: string | null;
  readonly changes: readonly FieldChange[];
}

/** A loop that is made or changed, as the store is asked for it. */
export interface LoopWork {
  readonly of: DeclaredLoop;
  readonly add: LoopDraft | null;
  readonly change: { readonly loopId: string; readonly change: LoopChange } | null;
}

export interface DeclaredPlan {
  readonly items: readonly PlanItem[];
  readonly seen: readonly { readonly loopId: string; readonly name: string; readonly revision: number }[];
  readonly work: readonly LoopWork[];
  readonly adopt: readonly { readonly loopId: string; readonly managedBy: string }[];
  readonly archive: readonly OwnedLoop[];
  readonly accounts: {
    readonly add: readonly DeclaredAccount[];
    readonly change: readonly {
      readonly of: DeclaredAccount;
      readonly before: AccountRecord;
      readonly keepsCap: boolean;
    }[];
    readonly remove: readonly AccountRecord[];
  };
  readonly limits: {
    readonly set: readonly { readonly of: DeclaredLimit; readonly before: number | null }[];
    readonly remove: readonly { readonly resource: string; readonly before: number }[];
  };
  /** Objects that these files declared before and do not now, and that stay since nobody said to take them away. */
  readonly left: number;
  /** What cannot be done: somebody else declares it. */
  readonly conflicts: readonly Problem[];
}

export interface PlanOptions {
  readonly sources: Sources;
  readonly prune: boolean;
  readonly adopt: boolean;
}

type Around = Pick<StoreContext, "settings" | "places" | "trees"> & { readonly store: Store };

/** Loops compared before others have a turn, and asked for at a time. */
const AT_ONCE = 500;

/** Decides. Nothing is changed, and this host is asked only where work is to be done. */
export async function planDeclaration(
  context: Around,
  declaration: Declaration,
  { sources, prune, adopt }: PlanOptions,
): Promise<DeclaredPlan> {
  const { store } = context;
  const { limits } = context.settings;
  const items: PlanItem[] = [];
  const conflicts: Problem[] = [];
  const seen: { loopId: string; name: string; revision: number }[] = [];
  const work: LoopWork[] = [];
  const adopted: { loopId: string; managedBy: string }[] = [];

  /** Whether what is there is these files' to change. */
  const isOurs = (of: { file: string; path: string }, what: string, managedBy: string | null): boolean => {
    if (adopt || (managedBy !== null && isOf(sources, managedBy))) return true;
    conflicts.push(
      declaration.problemAt(
        of,
        new AppError(
          "conflict",
          "owned_elsewhere",
          managedBy === null ? `${what} was made by hand` : `${what} is declared by ${managedBy}`,
          { hint: "Give --adopt to let this file declare it from now on, or choose another name." },
        ),
      ),
    );
    return false;
  };

  const { loops } = declaration;
  for (let from = 0; from < loops.length; from += AT_ONCE) {
    const some = loops.slice(from, from + AT_ONCE);
    const found = await store.declared.loops({ names: some.map(({ draft }) => draft.name) });
    const byName = new Map(found.map((loop) => [loop.name, loop]));
    for (const of of some) {
      const { draft, file } = of;
      const { name, schedule, policy } = draft;
      const loop = byName.get(name);
      if (loop === undefined) {
        const { target } = draft.target;
        work.push({ of, add: { name, schedule, target, policy, hostPin: null, managedBy: file }, change: null });
        items.push({ kind: "loop", name, action: "create", file, id: null, changes: [] });
        continue;
      }
      seen.push({ loopId: loop.id, name, revision: loop.revision });
      if (!isOurs(of, `the loop ${name}`, loop.managedBy)) continue;
      const target = await settledAs(context, draft.target.target, loop.target);
      const { changes, change } = loopChange(loop, { schedule, policy, target }, limits);
      const moves = loop.managedBy !== file;
      items.push({
        kind: "loop",
        name,
        action: changes.length > 0 ? "change" : moves ? "adopt" : "unchanged",
        file,
        id: loop.id,
        changes,
      });
      if (changes.length > 0) work.push({ of, add: null, change: { loopId: loop.id, change } });
      else if (moves) adopted.push({ loopId: loop.id, managedBy: file });
    }
    await new Promise(setImmediate);
  }

  const rest = await store.declared.rest({});
  const accounts = planAccounts(declaration, rest, context, isOurs, items);
  const caps = planLimits(declaration, rest, isOurs, items);

  // What these files declared before and do not now.
  const names = new Set(loops.map(({ draft }) => draft.name));
  const owned = (await ownedBy(store, sources)).filter(({ name }) => !names.has(name));
  const goneAccounts = rest.accounts.filter(
    ({ account, managedBy }) =>
      managedBy !== null && isOf(sources, managedBy) && !declaration.accounts.some(({ id }) => id === account.id),
  );
  const goneLimits = rest.limits.filter(
    ({ resource, managedBy }) =>
      managedBy !== null &&
      isOf(sources, managedBy) &&
      !declaration.limits.some((one) => one.resource === resource) &&
      // The cap of an account goes with it, or was compared with it.
      !rest.accounts.some(({ account }) => resource === `account:${account.id}`) &&
      !declaration.accounts.some(({ id }) => resource === `account:${id}`),
  );
  if (prune)
    items.push(
      ...owned.map(
        ({ name, loopId, managedBy }): PlanItem => ({
          kind: "loop",
          name,
          action: "delete",
          file: managedBy,
          id: loopId,
          changes: [],
        }),
      ),
      ...goneAccounts.map(
        ({ account, managedBy }): PlanItem => ({
          kind: "account",
          name: account.id,
          action: "delete",
          file: managedBy ?? "",
          id: account.id,
          changes: [],
        }),
      ),
      ...goneLimits.map(
        ({ resource, managedBy }): PlanItem => ({
          kind: "limit",
          name: resource,
          action: "delete",
          file: managedBy ?? "",
          id: null,
          changes: [],
        }),
      ),
    );
  if (prune) seen.push(...owned.map(({ loopId, name, revision }) => ({ loopId, name, revision })));
  return {
    items,
    seen,
    work,
    adopt: adopted,
    archive: prune ? owned : [],
    accounts: { ...accounts, remove: prune ? goneAccounts.map(({ account }) => account) : [] },
    limits: { ...caps, remove: prune ? goneLimits.map(({ resource, limit }) => ({ resource, before: limit })) : [] },
    left: prune ? 0 : owned.length + goneAccounts.length + goneLimits.length,
    conflicts,
  };
}

type IsOurs = (of: { file: string; path: string }, what: string, managedBy: string | null) => boolean;

function planAccounts(
  declaration: Declaration,
  rest: DeclaredRest,
  { places }: Pick<StoreContext, "places">,
  isOurs: IsOurs,
  items: PlanItem[],
): Omit<DeclaredPlan["accounts"], "remove"> {
  const add: DeclaredAccount[] = [];
  const change: { of: DeclaredAccount; before: AccountRecord; keepsCap: boolean }[] = [];
  for (const of of declaration.accounts) {
    const { id, draft, file } = of;
    const found = rest.accounts.find(({ account }) => account.id === id);
    if (found === undefined) {
      add.push(of);
      items.push({ kind: "account", name: id, action: "create", file, id, changes: [] });
      continue;
    }
    if (!isOurs(of, `the account ${id}`, found.managedBy)) continue;
    const keepsCap = declaration.limits.some(({ resource }) => resource === `account:${id}`);
    const cap = rest.limits.find(({ resource }) => resource === `account:${id}`)?.limit ?? null;
    const { account } = found;
    const changes = changesOf(
      formOfAccount(account, keepsCap ? null : cap, places),
      formOfAccount(draft, keepsCap ? null : draft.cap, places),
      account.env,
      draft.env,
    );
    const moves = found.managedBy !== file;
    items.push({
      kind: "account",
      name: id,
      action: changes.length > 0 ? "change" : moves ? "adopt" : "unchanged",
      file,
      id,
      changes,
    });
    if (changes.length > 0 || moves) change.push({ of, before: account, keepsCap });
  }
  return { add, change };
}

function planLimits(
  declaration: Declaration,
  rest: DeclaredRest,
  isOurs: IsOurs,
  items: PlanItem[],
): Omit<DeclaredPlan["limits"], "remove"> {
  const set: { of: DeclaredLimit; before: number | null }[] = [];
  for (const of of declaration.limits) {
    const { resource, limit, file } = of;
    const found = rest.limits.find((one) => one.resource === resource);
    if (found !== undefined && !isOurs(of, `the limit of ${resource}`, found.managedBy)) continue;
    const before = found?.limit ?? null;
    const differs = before !== limit;
    const moves = found?.managedBy !== file;
    const action: Action = found === undefined ? "create" : differs ? "change" : moves ? "adopt" : "unchanged";
    const changes = found !== undefined && differs ? [{ path: "", from: before, to: limit }] : [];
    items.push({ kind: "limit", name: resource, action, file, id: null, changes });
    if (differs || moves) set.push({ of, before });
  }
  return { set };
}

/** Loops that these files declared, or that a file of these folders did which may be gone by now. */
async function ownedBy(store: Store, sources: Sources): Promise<readonly OwnedLoop[]> {
  const found = new Map<string, OwnedLoop>();
  // Behind a path and before the next: `\0` ends no path, and `0` follows `/`.
  for (const file of sources.files)
    for (const one of await store.declared.owned({ from: file, to: `${file}\u0001` })) found.set(one.loopId, one);
  for (const folder of sources.folders) {
    const below = folder === "/" ? "/" : `${folder}/`;
    for (const one of await store.declared.owned({ from: below, to: `${below.slice(0, -1)}0` }))
      found.set(one.loopId, one);
  }
  return [...found.values()].filter(({ managedBy }) => isOf(sources, managedBy));
}

/**
 * What is declared `auto` is kept as `off` where there is nothing to make a tree from: it is no change as long as that is so.
 */
async function settledAs(context: Pick<StoreContext, "trees">, target: Target, kept: Target): Promise<Target> {
  if (target.worktree !== "auto" || kept.worktree !== "off" || target.cwd !== kept.cwd) return target;
  const { mode } = await settleWorktree(context, "auto", target.cwd, true);
  return { ...target, worktree: mode };
}

/** A prompt in few words that differ where its bytes do. What it says is not shown where it may name a secret. */
function promptWords(target: Target): Json {
  if (target.kind !== "agent") return null;
  const { digest, bytes, head } = target.prompt;
  const words = Object.keys(target.secrets).length === 0 ? `${JSON.stringify(head)}, ` : "";
  return `${words}${describeSize(bytes)}, ${digest.slice(0, 12)}`;
}

/** How a loop is to differ from what it is: field by field for people, and for the store only the parts that are touched. */
export function loopChange(
  loop: LoopRecord,
  to: LoopDefinition,
  limits: Limits,
): { readonly changes: readonly FieldChange[]; readonly change: LoopChange } {
  const changes = changesOf(
    formOfLoop(loop, { limits, prompt: promptWords(loop.target) }),
    formOfLoop(to, { limits, prompt: promptWords(to.target) }),
    loop.target.env,
    to.target.env,
  );
  const touched = new Set(changes.map(({ path }) => partOf(path)));
  const isOtherKind = to.target.kind !== loop.target.kind;
  return {
    changes,
    change: {
      ...(touched.has("schedule") ? { schedule: to.schedule } : {}),
      ...(touched.has("target") ? { target: to.target } : {}),
      ...(touched.has("policy") || isOtherKind
        ? { policy: { ...to.policy, hookTimeoutMs: loop.policy.hookTimeoutMs } }
        : {}),
    },
  };
}

const HIDDEN = "(hidden)";

/** Differences of two forms, key by key; what stands under `agent` and variables each for itself. */
function changesOf(
  from: Form,
  to: Form,
  envBefore: Readonly<Record<string, string>>,
  envAfter: Readonly<Record<string, string>>,
): readonly FieldChange[] {
  const found: FieldChange[] = [];
  const compare = (a: Form, b: Form, prefix: string): void => {
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      const [one, other] = [a[key] ?? null, b[key] ?? null];
      if (JSON.stringify(one) === JSON.stringify(other)) continue;
      const isLevel = prefix === "" && ["agent", "env", "secrets"].includes(key);
      if (isLevel) {
        compare((one ?? {}) as Form, (other ?? {}) as Form, key);
        continue;
      }
      const isSecret =
        prefix === "env" && (holdsSecret(key, envBefore[key] ?? "") || holdsSecret(key, envAfter[key] ?? ""));
      const shown = (value: Json) => (isSecret && value !== null ? HIDDEN : value);
      found.push({ path: prefix === "" ? key : `${prefix}.${key}`, from: shown(one), to: shown(other) });
    }
  };
  compare(from, to, "");
  return found;
}
