import { resolve } from "node:path";
import { AppError, type ErrorDocument, type Problem, toDocument } from "../../core/errors.ts";
import { type Warning, warningShape } from "../documents.ts";
import { flag, type InputOf, required, texts } from "../fields.ts";
import { defineOperation, type LocalContext } from "../operation.ts";
import { anything, boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";
import type { DeclaredAccount } from "../../core/ports.ts";
import type { Target } from "../../core/target.ts";
import { promptOf } from "../../core/target-parts.ts";
import type { Declaration } from "./declaration.ts";
import type { DeclaredRequest } from "./declared-door.ts";
import type { Sources } from "./declared-files.ts";
import type { DeclaredPlan, PlanItem } from "./declared-plan.ts";

const input = {
  path: required(
    texts("files, and folders with files named drover.yaml or NAME.drover.yaml", {
      placeholder: "PATH",
      completes: "file",
    }),
  ),
  dryRun: flag("shows what would change, and changes nothing"),
  prune: flag("archives what these files declared before and do not now"),
  adopt: flag("takes over what was made by hand or is declared by another file"),
  watch: flag("applies again whenever a file changes"),
} as const;
type Input = InputOf<typeof input>;

/** What was done, or would be. */
export interface ApplyAnswer {
  readonly dryRun: boolean;
  /** Whether anything was changed. */
  readonly applied: boolean;
  readonly files: readonly string[];
  readonly items: readonly PlanItem[];
  readonly counts: { readonly [K in PlanItem["action"]]: number };
  /** Objects that these files declared before and do not now; with `prune` they are among the items. */
  readonly left: number;
  readonly warnings: readonly Warning[];
}

/** One round of `--watch`: what was done, or why nothing was. */
export type ApplyRound = ApplyAnswer | { readonly error: Omit<ErrorDocument, "kind"> };

export const operation = defineOperation({
  name: "apply",
  where: "local",
  raises: ["conflict", "unauthorised"],
  summary: "Make loops, accounts and limits what drover.yaml files say: all of it or nothing",
  input,
  output: object({
    dryRun: boolean,
    applied: boolean,
    files: listOf(string),
    items: listOf(
      object({
        kind: oneOf(["loop", "account", "limit"]),
        name: string,
        action: oneOf(["create", "change", "adopt", "unchanged", "delete"]),
        file: string,
        id: nullable(string),
        changes: listOf(object({ path: string, from: anything, to: anything })),
      }),
    ),
    counts: object({ create: integer, change: integer, adopt: integer, unchanged: integer, delete: integer }),
    left: integer,
    warnings: listOf(warningShape),
  }),
  cli: {
    positionals: ["path"],
    follows: "watch",
    examples: [
      "apply drover.yaml --dry-run",
      "apply drover.yaml",
      "apply ~/loops ops.drover.yaml --prune",
      "apply drover.yaml --watch",
    ],
    notes: [
      "Loops that --prune takes away are archived: their runs stay, and `drover loop unarchive` brings them back.",
      "With --watch a file that is wrong changes nothing: what was applied last stays, and the problems are said.",
      "`drover config schema` prints the form of a file for editors.",
    ],
  },
  run: (context, given) => applyOnce(context, given),
  follow: (context, given, signal) => applyAgain(context, given, signal),
});

async function applyOnce(
  context: LocalContext,
  given: Input,
  onRead: (file: string) => void = () => {},
): Promise<ApplyAnswer> {
  const { sourcesOf } = await import("./declared-files.ts");
  const sources = sourcesOf(
    given.path.map((path) => resolve(context.cwd, path)),
    given.prune,
  );
  const { readDeclaration } = await import("./declaration.ts");
  const declaration = await readDeclaration(context, sources.files, context.env["HOME"], onRead);
  return decideAndDo(context, given, sources, declaration);
}

async function decideAndDo(
  context: LocalContext,
  { dryRun, prune, adopt }: Omit<Input, "path" | "watch">,
  sources: Sources,
  declaration: Declaration,
): Promise<ApplyAnswer> {
  const [{ planDeclaration }, { emptyStore }, { badDeclaration }, { inFormWords, inLoopWords }] = await Promise.all([
    import("./declared-plan.ts"),
    import("../empty-store.ts"),
    import("./declaration.ts"),
    import("./declared-form.ts"),
  ]);
  const options = { sources, prune, adopt };
  const plan =
    (await context.reading((reading) => planDeclaration(reading, declaration, options))) ??
    (await planDeclaration({ ...context, store: emptyStore }, declaration, options));
  if (plan.conflicts.length > 0) throw badDeclaration(plan.conflicts, "conflict");

  const changes = requestOf(plan, declaration.prompts);
  const isIdle = plan.items.every(({ action }) => action === "unchanged");
  let warnings: readonly Warning[] = [];
  if (!isIdle) {
    const answer = (await (dryRun ? check(context, changes) : context.perform("declared.apply", { changes }))) as {
      readonly faults: readonly (ErrorDocument & { readonly name: string })[];
      readonly warnings: readonly Warning[];
    };
    if (answer.faults.length > 0) {
      const problems = answer.faults.map(({ name, kind, code, message, hint, path }): Problem => {
        const of = declaration.loops.find(({ draft }) => draft.name === name);
        const error = inFormWords(
          new AppError(kind, code, message, {
            ...(hint === undefined ? {} : { hint }),
            ...(path === undefined ? {} : { path }),
          }),
          "loop",
        );
        return of === undefined ? toDocument(error) : declaration.problemAt(of, error);
      });
      const kinds = new Set(answer.faults.map(({ kind }) => kind));
      throw badDeclaration(problems, kinds.size === 1 ? (answer.faults[0]?.kind ?? "invalid") : "invalid");
    }
    warnings = answer.warnings.map(({ code, message, hint }) => ({
      code,
      message: inLoopWords(message),
      hint: inLoopWords(hint),
    }));
  }
  const counts = { create: 0, change: 0, adopt: 0, unchanged: 0, delete: 0 };
  for (const { action } of plan.items) counts[action] += 1;
  const { items, left } = plan;
  return { dryRun, applied: !dryRun && !isIdle, files: sources.files, items, counts, left, warnings };
}

/** The daemon is asked where there is one: what it would start is looked for in its surroundings. */
async function check(context: LocalContext, changes: unknown): Promise<unknown> {
  try {
    return await context.call("declared.check", { changes });
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "daemon_down") throw error;
    return context.perform("declared.check", { changes });
  }
}

function requestOf(plan: DeclaredPlan, known: ReadonlyMap<string, string>): DeclaredRequest {
  const prompts: Record<string, string> = {};
  const named = (target: Target | undefined): void => {
    const digest = target === undefined ? null : promptOf(target);
    const content = digest === null ? undefined : known.get(digest);
    if (digest !== null && content !== undefined) prompts[digest] = content;
  };
  const accountOf = ({ provider, name, home, env, secrets }: DeclaredAccount) => ({
    provider,
    name,
    home,
    env,
    secrets,
  });
  const add: DeclaredRequest["loops"]["add"] = [];
  const change: DeclaredRequest["loops"]["change"] = [];
  for (const { of, add: added, change: changed } of plan.work) {
    named(added?.target ?? changed?.change.target);
    if (added !== null) {
      const { hostPin: _, ...draft } = added;
      add.push({ draft, paused: null });
    }
    if (changed !== null)
      change.push({ loopId: changed.loopId, name: of.draft.name, change: changed.change, managedBy: of.file });
  }
  return {
    seen: [...plan.seen],
    loops: { add, change, adopt: [...plan.adopt], archive: plan.archive.map(({ loopId }) => ({ loopId })) },
    accounts: {
      add: plan.accounts.add.map(({ draft, file }) => ({ draft, managedBy: file })),
      change: plan.accounts.change.map(({ of, before, keepsCap }) => ({
        before: accountOf(before),
        draft: of.draft,
        keepsCap,
        managedBy: of.file,
      })),
      remove: plan.accounts.remove.map(accountOf),
    },
    limits: {
      set: plan.limits.set.map(({ of, before }) => ({
        resource: of.resource,
        limit: of.limit,
        before,
        managedBy: of.file,
      })),
      remove: [...plan.limits.remove],
    },
    prompts,
  };
}

/** Applies now and whenever something of it changes, until the signal. What is wrong is told once, and changes nothing. */
async function* applyAgain(context: LocalContext, given: Input, signal: AbortSignal): AsyncGenerator<ApplyRound> {
  const { watchFiles } = await import("./declared-watch.ts");
  let told = "";
  for await (const round of watchFiles(context, given.path, signal, (onRead) => applyOnce(context, given, onRead))) {
    if (round.error === null) {
      told = "";
      yield round.answer;
      continue;
    }
    const { kind: _, ...error } = toDocument(round.error);
    const said = JSON.stringify(error);
    if (said !== told) yield { error };
    told = said;
  }
}
