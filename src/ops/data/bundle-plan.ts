/** What taking in a bundle would make of each loop, account and limit: decided once, for the dry run and for the change. */
import { AppError } from "../../core/errors.ts";
import type { AccountDraft, DeclaredChanges } from "../../core/ports.ts";
import type { LoopRecord } from "../../core/records.ts";
import type { PromptBytes } from "../accounts/agent-target.ts";
import { draftAccount } from "../accounts/account-draft.ts";
import { secretNames } from "./bundle-secrets.ts";
import type { Definition } from "./bundle.ts";
import {
  type Form,
  formOfLoop,
  inFormWords,
  type LoopDefinition,
  readAccountForm,
  readLoopForm,
} from "../declared/declared-form.ts";
import { badInput, type Reading } from "../fields.ts";
import type { StoreContext } from "../operation.ts";
import { checkJitter, checkLoopName, describeTargetOf, makeLoopPolicy, makeSchedule } from "../runs/work.ts";

/** What becomes of one thing. `conflict`: another one is here. `blocked`: it cannot be one. `skip`: it is left out, as asked or because its time is over. */
export type Outcome = "create" | "same" | "replace" | "conflict" | "blocked" | "skip";

export interface BundleEntry {
  readonly kind: "account" | "limit" | "loop";
  readonly name: string;
  readonly outcome: Outcome;
  /** Why, and what to look at. */
  readonly notes: readonly string[];
}

export interface BundlePlan {
  readonly entries: readonly BundleEntry[];
  readonly changes: DeclaredChanges;
  readonly prompts: readonly PromptBytes[];
  /** What a person has to do afterwards. */
  readonly todo: readonly string[];
}

export type PlanContext = Pick<
  StoreContext,
  "store" | "settings" | "clock" | "hostZone" | "agents" | "places" | "isRoot" | "isFolder" | "hostId"
>;

export interface PlanRequest {
  /** Takes the place of what is here under the same name and differs. */
  readonly replace: boolean;
  /** Leaves out what is in conflict or blocked. */
  readonly skip: boolean;
}

/** A bundle holds all that it means: no file of this host is read for it. */
const reading: Reading = {
  cwd: "/",
  readBytes: (_, path) => {
    throw badInput(path, `${path} names a file of this host`, "A bundle holds its prompts itself.", "path_escapes");
  },
};

const PAUSED = "imported from a bundle";

/** Errors: those of the store. What is wrong with the bundle's content is in the entries. */
export async function planBundle(
  context: PlanContext,
  definitions: readonly Definition[],
  request: PlanRequest,
): Promise<BundlePlan> {
  const draft = new Draft(context, request);
  const keys = (
    await Promise.all((["claude", "codex", "custom"] as const).map((one) => context.agents.about(one)))
  ).flatMap(({ secretKeys }) => secretKeys);
  const { accounts, limits } = await context.store.declared.rest({});
  const loops = definitions.filter((one) => one.kind === "loop");
  const there = new Map(
    (await context.store.declared.loops({ names: loops.map(({ name }) => name) })).map((loop) => [loop.name, loop]),
  );
  const seen = new Set<string>();
  for (const one of definitions) {
    const name = one.kind === "loop" ? one.name : one.kind === "limit" ? one.resource : `${one.provider}:${one.name}`;
    const key = `${one.kind} ${name}`;
    if (seen.has(key)) draft.add(one.kind, name, "blocked", ["it is in the bundle twice"]);
    else if (one.kind === "loop") await draft.loop(one, there.get(one.name) ?? null, keys);
    else if (one.kind === "limit")
      draft.limit(one, limits.find(({ resource }) => resource === one.resource)?.limit ?? null);
    else {
      const held = accounts.find(({ account }) => account.id === name);
      const cap = limits.find(({ resource }) => resource === `account:${name}`)?.limit ?? null;
      await draft.account(one, held === undefined ? null : { ...held.account, cap }, held?.managedBy ?? null, keys);
    }
    seen.add(key);
  }
  return draft.plan();
}

type Of<Kind extends Definition["kind"]> = Extract<Definition, { readonly kind: Kind }>;

const sorted = (value: unknown): unknown =>
  typeof value !== "object" || value === null || Array.isArray(value)
    ? value
    : Object.fromEntries(
        Object.entries(value)
          .toSorted(([a], [b]) => (a < b ? -1 : 1))
          .map(([key, one]) => [key, sorted(one)]),
      );
const alike = (a: unknown, b: unknown): boolean => JSON.stringify(sorted(a)) === JSON.stringify(sorted(b));

/** A path that climbs, or that is none from the top. */
const escapes = (path: string): boolean =>
  !path.startsWith("/") || path.split("/").some((part) => part === ".." || part === ".");

/** Where a form names a place outside of what it says. */
function escapeOf(form: { readonly [key: string]: unknown }): string | null {
  const agent = (form["agent"] ?? {}) as { readonly [key: string]: unknown };
  const sources = Object.entries((form["secrets"] ?? {}) as { readonly [key: string]: unknown });
  const places: [string, unknown][] = [
    ["cwd", form["cwd"] ?? "/"],
    ["home", form["home"] === undefined ? "/" : ".."],
    ["promptFile", agent["promptFile"] === undefined ? "/" : ".."],
    ...sources.map(([key, source]): [string, unknown] => [
      `secrets.${key}`,
      typeof source === "string" && source.startsWith("file:")
        ? source.slice("file:".length).replace(/^~(?=\/)/, "")
        : "/",
    ]),
  ];
  return places.find(([, path]) => typeof path === "string" && escapes(path))?.[0] ?? null;
}

class Draft {
  private readonly entries: BundleEntry[] = [];
  private readonly prompts: PromptBytes[] = [];
  private readonly todo: string[] = [];
  private readonly seen: { loopId: string; name: string; revision: number }[] = [];
  private readonly addLoops: DeclaredChanges["loops"]["add"][number][] = [];
  private readonly changeLoops: DeclaredChanges["loops"]["change"][number][] = [];
  private readonly addAccounts: DeclaredChanges["accounts"]["add"][number][] = [];
  private readonly changeAccounts: DeclaredChanges["accounts"]["change"][number][] = [];
  private readonly setLimits: DeclaredChanges["limits"]["set"][number][] = [];
  private readonly context: PlanContext;
  private readonly request: PlanRequest;

  constructor(context: PlanContext, request: PlanRequest) {
    this.context = context;
    this.request = request;
  }

  add(kind: BundleEntry["kind"], name: string, outcome: Outcome, notes: readonly string[]): void {
    const left = (outcome === "conflict" || outcome === "blocked") && this.request.skip;
    this.entries.push({ kind, name, outcome: left ? "skip" : outcome, notes });
  }

  plan(): BundlePlan {
    return {
      entries: this.entries,
      changes: {
        seen: this.seen,
        loops: { add: this.addLoops, change: this.changeLoops, adopt: [], archive: [] },
        accounts: { add: this.addAccounts, change: this.changeAccounts, remove: [] },
        limits: { set: this.setLimits, remove: [] },
      },
      prompts: this.prompts,
      todo: this.todo,
    };
  }

  /** What is here differs: it is replaced where that was asked for. */
  private meet(kind: BundleEntry["kind"], name: string, notes: readonly string[]): boolean {
    if (this.request.replace) this.add(kind, name, "replace", notes);
    else this.add(kind, name, "conflict", notes.length > 0 ? notes : ["another one of this name is here"]);
    return this.request.replace;
  }

  limit({ resource, limit }: Of<"limit">, before: number | null): void {
    if (resource.startsWith("host:")) return this.add("limit", resource, "skip", ["it is another host's"]);
    if (before === limit) return this.add("limit", resource, "same", []);
    if (before === null) this.add("limit", resource, "create", []);
    else if (!this.meet("limit", resource, [`${before} here, ${limit} in the bundle`])) return;
    this.setLimits.push({ resource, limit, before, managedBy: null });
  }

  async account(
    one: Of<"account">,
    here: (Omit<AccountDraft, "provider"> & { readonly provider: AccountDraft["provider"] }) | null,
    managedBy: string | null,
    keys: readonly string[],
  ): Promise<void> {
    const id = `${one.provider}:${one.name}`;
    const draft = await this.read("account", id, one.form, async () => {
      const { input, faults } = readAccountForm(one.form, reading);
      if (faults !== null) throw firstOf(faults);
      return draftAccount(this.context, one.provider, one.name, input);
    });
    if (draft === null) return;
    this.missing(`account ${id}`, one.withheld);
    if (here === null) {
      this.add("account", id, "create", []);
      this.todo.push(`log in: drover account login ${id}`);
      this.addAccounts.push({ draft, managedBy: null });
      return;
    }
    const bare = (env: Readonly<Record<string, string>>) =>
      without(env, [...secretNames(env, keys), ...named(one.withheld)]);
    const same = alike([bare(here.env), here.secrets, here.cap], [bare(draft.env), draft.secrets, draft.cap]);
    if (same) return this.add("account", id, "same", []);
    if (!this.meet("account", id, [])) return;
    const { provider, name, home, env, secrets } = here;
    this.changeAccounts.push({
      before: { provider, name, home, env, secrets },
      draft: { ...draft, home, env: { ...only(env, named(one.withheld)), ...draft.env } },
      keepsCap: false,
      managedBy,
    });
  }

  async loop(one: Of<"loop">, here: LoopRecord | null, keys: readonly string[]): Promise<void> {
    const { limits } = this.context.settings;
    const made = await this.read("loop", one.name, one.form, async () => {
      await checkLoopName(one.name);
      const { input, faults } = readLoopForm(one.form, reading);
      if (faults !== null) throw firstOf(faults);
      if (input.workflow !== undefined)
        throw badInput(
          "workflow",
          "workflow names a file of this host",
          "Add the loop here with its file: drover loop add NAME --workflow FILE.",
          "path_escapes",
        );
      const { target, prompt } = await describeTargetOf(this.context, input, null);
      const policy = await makeLoopPolicy(this.context, input, target.kind, null);
      const schedule = await makeSchedule(this.context, input);
      if (schedule === null) throw badInput("", "it has no schedule");
      checkJitter(schedule, policy);
      return { definition: { schedule, target, policy }, prompt };
    });
    if (made === null) return;
    const { definition, prompt } = made;
    const { schedule, target, policy } = definition;
    const now = this.context.clock.now();
    if (schedule.kind === "once" && schedule.at <= now && here === null)
      return this.add("loop", one.name, "skip", ["its one instant has passed"]);
    if (policy.expiresAt !== null && policy.expiresAt <= now)
      return this.add("loop", one.name, "skip", ["it has expired"]);
    const notes = this.context.isFolder(target.cwd) ? [] : [`its folder ${target.cwd} is not here`];
    if (here !== null) {
      this.seen.push({ loopId: here.id, name: here.name, revision: here.revision });
      const key = (of: LoopDefinition): Form => {
        const env = without(of.target.env, [...secretNames(of.target.env, keys), ...named(one.withheld)]);
        const digest = of.target.kind === "agent" ? of.target.prompt.digest : null;
        return formOfLoop({ ...of, target: { ...of.target, env } }, { limits, prompt: digest });
      };
      const [mine, theirs] = [key(here), key(definition)];
      const differ = [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].filter(
        (word) => !alike(mine[word], theirs[word]),
      );
      if (differ.length === 0) return this.add("loop", one.name, "same", notes);
      this.missing(
        `loop ${one.name}`,
        one.withheld.filter((where) => here.target.env[nameIn(where)] === undefined),
      );
      if (!this.meet("loop", one.name, [`it differs in ${differ.join(", ")}`, ...notes])) return;
      const env = { ...only(here.target.env, named(one.withheld)), ...target.env };
      this.changeLoops.push({
        loopId: here.id,
        change: { schedule, target: { ...target, env }, policy },
        managedBy: here.managedBy,
      });
    } else {
      this.missing(`loop ${one.name}`, one.withheld);
      this.add("loop", one.name, "create", notes);
      this.addLoops.push({
        draft: { name: one.name, schedule, target, policy, hostPin: this.context.hostId, managedBy: null },
        paused: PAUSED,
      });
    }
    if (prompt !== null) this.prompts.push(prompt);
  }

  /** What a form says; null, and an entry, where it cannot be one. */
  private async read<T>(
    kind: "account" | "loop",
    name: string,
    form: { readonly [key: string]: unknown },
    read: () => Promise<T>,
  ): Promise<T | null> {
    const escape = escapeOf(form);
    if (escape !== null) {
      this.add(kind, name, "blocked", [`${escape} names a place that a bundle may not name (path_escapes)`]);
      return null;
    }
    try {
      return await read();
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      const { message, path } = inFormWords(error, kind);
      this.add(kind, name, "blocked", [
        path === undefined || path === "" || message.includes(path) ? message : `${path}: ${message}`,
      ]);
      return null;
    }
  }

  private missing(of: string, withheld: readonly string[]): void {
    for (const one of withheld)
      this.todo.push(`give ${of} its ${one}, which the bundle does not carry: --env, or --secret`);
  }
}

const firstOf = (faults: readonly AppError[]): AppError => faults[0] ?? badInput("", "it cannot be read");

const nameIn = (where: string): string => where.replace(/^env\./, "");
const named = (withheld: readonly string[]): readonly string[] => withheld.map(nameIn);
const without = (env: Readonly<Record<string, string>>, names: readonly string[]) =>
  Object.fromEntries(Object.entries(env).filter(([name]) => !names.includes(name)));
const only = (env: Readonly<Record<string, string>>, names: readonly string[]) =>
  Object.fromEntries(Object.entries(env).filter(([name]) => names.includes(name)));
