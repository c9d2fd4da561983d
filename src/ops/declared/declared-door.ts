/** What is declared as the store is asked for it: checked once more where it arrives, looked at on this host, and its prompts kept. */
import { z } from "zod";
import { parseCron } from "../../core/cron.ts";
import { AppError, type ErrorDocument, toDocument } from "../../core/errors.ts";
import { loopName, loopPolicy } from "../../core/loop.ts";
import type { DeclaredChanges, LoopChange } from "../../core/ports.ts";
import { SCHEDULE_LIMITS } from "../../core/schedule.ts";
import { accountName, type Provider, providers, target } from "../../core/target.ts";
import { checkZone } from "../../core/zone.ts";
import { untouchedDefault } from "../accounts/account-find.ts";
import type { Warning } from "../documents.ts";
import type { StoreContext } from "../operation.ts";
import { admitTarget } from "../runs/work.ts";
import { requireForm } from "../schema.ts";

const instant = z.int();
const schedule = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("once"), at: instant }),
  z.strictObject({
    kind: z.literal("interval"),
    everyMs: z.int().min(SCHEDULE_LIMITS.minEveryMs).max(SCHEDULE_LIMITS.maxEveryMs),
    anchorAt: instant,
  }),
  z.strictObject({ kind: z.literal("cron"), expression: z.string(), zone: z.string() }),
  z.strictObject({ kind: z.literal("dynamic"), firstAt: instant }),
]);
const owner = z.string().min(1).nullable();
const accountDraft = z.strictObject({
  provider: z.enum(providers),
  name: accountName,
  home: z.string().nullable(),
  env: z.record(z.string(), z.string()),
  secrets: z.record(z.string(), z.string()),
  cap: z.int().min(1).nullable(),
});
const accountBefore = accountDraft.omit({ cap: true });

/** What a command asks for, once it has decided: `DeclaredChanges` as JSON, with the prompts that are named. */
const request = z.strictObject({
  seen: z.array(z.strictObject({ loopId: z.string(), name: z.string(), revision: z.int() })),
  loops: z.strictObject({
    add: z.array(
      z.strictObject({
        draft: z.strictObject({
          name: loopName,
          schedule,
          target,
          policy: loopPolicy,
          managedBy: owner,
        }),
        paused: z.string().nullable(),
      }),
    ),
    change: z.array(
      z.strictObject({
        loopId: z.string(),
        name: z.string(),
        change: z.strictObject({
          schedule: schedule.optional(),
          target: target.optional(),
          policy: loopPolicy.optional(),
        }),
        managedBy: owner,
      }),
    ),
    adopt: z.array(z.strictObject({ loopId: z.string(), managedBy: owner })),
    archive: z.array(z.strictObject({ loopId: z.string() })),
  }),
  accounts: z.strictObject({
    add: z.array(z.strictObject({ draft: accountDraft, managedBy: owner })),
    change: z.array(
      z.strictObject({ before: accountBefore, draft: accountDraft, keepsCap: z.boolean(), managedBy: owner }),
    ),
    remove: z.array(accountBefore),
  }),
  limits: z.strictObject({
    set: z.array(
      z.strictObject({
        resource: z.string().regex(/^(account|provider|folder):./s),
        limit: z.int().min(0),
        before: z.int().nullable(),
        managedBy: owner,
      }),
    ),
    remove: z.array(z.strictObject({ resource: z.string(), before: z.int() })),
  }),
  /** Content of prompts by their digest, in base64. */
  prompts: z.record(z.string(), z.string()),
});
export type DeclaredRequest = z.input<typeof request>;
type Request = z.output<typeof request>;

/** What this host says of one object. */
export interface DoorFault extends ErrorDocument {
  /** Of the loop. */
  readonly name: string;
}

export interface Admitted {
  readonly changes: DeclaredChanges;
  readonly prompts: Request["prompts"];
  readonly warnings: readonly Warning[];
}

/** Longest time that others wait for a turn. */
const TURN_MS = 10;

/** Lets others have a turn now and then. */
function turns(): () => Promise<void> {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < TURN_MS) return;
    await new Promise(setImmediate);
    began = performance.now();
  };
}

/**
 * Checks a request, and what is new or different of it against this host. Loops that stay as they are, and parts of a loop
 * that do, are not looked at: a provider that is away now is no reason to refuse them.
 * Errors: AppError invalid `bad_input` for a request that no command of this version makes.
 */
export async function admitDeclared(
  context: StoreContext,
  input: unknown,
): Promise<
  | { readonly admitted: Admitted; readonly faults: null }
  | { readonly admitted: null; readonly faults: readonly DoorFault[] }
> {
  const { loops, accounts, prompts, ...rest } = requireForm(request, input, "changes");
  const around = remembering(context, new Set(accounts.add.map(({ draft }) => `${draft.provider}:${draft.name}`)));
  const faults: DoorFault[] = [];
  const warnings: Warning[] = [];
  const turn = turns();

  /** The schedule and target as they are kept; null where a fault was told. */
  async function looked(name: string, of: LoopChange): Promise<LoopChange | null> {
    await turn();
    try {
      if (of.schedule?.kind === "cron") {
        parseCron(of.schedule.expression, "--cron");
        checkZone(of.schedule.zone, "--tz");
      }
      if (of.target === undefined) return of;
      const { target: wanted } = of;
      const content = wanted.kind === "agent" ? prompts[wanted.prompt.digest] : undefined;
      const prompt = wanted.kind === "agent" && content !== undefined ? { ref: wanted.prompt, content } : null;
      const made = await admitTarget(around, { target: wanted, prompt }, { promptFlag: "--prompt", env: wanted.env });
      warnings.push(...made.warnings.map((one) => ({ ...one, message: `${name}: ${one.message}` })));
      return { ...of, target: made.target };
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      faults.push({ ...toDocument(error), name });
      return null;
    }
  }

  const add: DeclaredChanges["loops"]["add"][number][] = [];
  for (const { draft, paused } of loops.add) {
    const found = await looked(draft.name, { schedule: draft.schedule, target: draft.target });
    if (found?.target !== undefined)
      add.push({ draft: { ...draft, target: found.target, hostPin: context.hostId }, paused });
  }
  const change: DeclaredChanges["loops"]["change"][number][] = [];
  for (const { loopId, name, change: of, managedBy } of loops.change) {
    const given = Object.fromEntries(Object.entries(of).filter(([, value]) => value !== undefined)) as LoopChange;
    const found = await looked(name, given);
    if (found !== null) change.push({ loopId, change: found, managedBy });
  }
  if (faults.length > 0) return { admitted: null, faults };
  const { adopt, archive } = loops;
  return {
    admitted: { changes: { ...rest, accounts, loops: { add, change, adopt, archive } }, prompts, warnings },
    faults: null,
  };
}

/** The same questions are answered once: thousands of loops run the same program in the same folder. */
function remembering(context: StoreContext, declared: ReadonlySet<string>): StoreContext {
  const once = <Args extends readonly unknown[], T>(ask: (...args: Args) => T): ((...args: Args) => T) => {
    const known = new Map<string, T>();
    return (...args) => {
      const key = JSON.stringify(args);
      if (!known.has(key)) known.set(key, ask(...args));
      return known.get(key) as T;
    };
  };
  const { agents, trees, store } = context;
  const get = once((accountId: string) =>
    declared.has(accountId)
      ? Promise.resolve({
          account: untouchedDefault(accountId.split(":")[0] as Provider),
          holds: [],
          providerHolds: [],
          active: 0,
          cap: null,
        })
      : store.accounts.get({ accountId }),
  );
  return {
    ...context,
    isFolder: once(context.isFolder),
    findProgram: once(context.findProgram),
    agents: { ...agents, about: once(agents.about), find: once(agents.find) },
    trees: { ...trees, isUnknown: once(trees.isUnknown), lacks: once(trees.lacks) },
    store: { ...store, accounts: { ...store.accounts, get: ({ accountId }) => get(accountId) } },
  };
}
