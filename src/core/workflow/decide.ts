/** What a definition says of one step of a run: whether it starts, and what it then is. Pure: the same question has the same answer. */
import { AppError, ensure } from "../errors.ts";
import type { Limits } from "../limits.ts";
import type { RunPolicy } from "../loop.ts";
import type { EndedStep, StepToJudge, StepVerdict } from "../ports.ts";
import type { RunRecord, StepSpec } from "../records.ts";
import { readiness } from "../step-graph.ts";
import { agentTarget, commandTarget, type ProcessTarget, type WorkflowTarget } from "../target.ts";
import type { Workflow, WorkflowBounds } from "./check-definition.ts";
import type { Definition, StepForm } from "./definition.ts";
import { checkExpression, evaluate, type Expression, type Scope, type Values } from "./expression.ts";
import { readTemplate, renderTemplate, textOf } from "./template.ts";
import type { Pinned } from "./pinned.ts";

/** A definition that is asked, and what of it was read before. */
export interface Asked {
  readonly workflow: Workflow;
  readonly files: Pinned["files"];
  readonly steps: ReadonlyMap<string, StepForm>;
  readonly expressions: Map<string, Expression>;
}

export const askedOf = (workflow: Workflow, files: Pinned["files"]): Asked => ({
  workflow,
  files,
  steps: new Map(workflow.definition.steps.map((step) => [step.id, step])),
  expressions: new Map(),
});

export type DecideBounds = WorkflowBounds &
  Pick<Limits, "agentTimeoutMs" | "agentIdleTimeoutMs" | "promptBytes" | "foreachItems">;

/** Types of steps that this version runs. */
const RUN = new Set<StepForm["type"]>(["command", "gate", "check", "agent"]);

/** Why a workflow cannot be run by this version, by its first step that cannot; null: it can. */
export function notRunnable({ definition }: Workflow): { readonly path: string; readonly message: string } | null {
  for (const [place, step] of definition.steps.entries()) {
    const path = `steps[${place}]`;
    if (!RUN.has(step.type))
      return { path, message: `the step ${step.id} is of type ${step.type}, which this version does not run` };
  }
  return null;
}

const anything: Scope = { typeOf: () => ({ schema: true }) };

function expressionOf(asked: Asked, source: string, bounds: WorkflowBounds): Expression {
  const known = asked.expressions.get(source);
  if (known !== undefined) return known;
  const { expression, faults } = checkExpression(source, anything, bounds);
  ensure(expression !== null, `an expression of a definition that was checked is fine: ${faults[0]?.message}`);
  asked.expressions.set(source, expression);
  return expression;
}

/** Texts in a value, however deep they lie. */
function* textsIn(value: unknown): Generator<string> {
  if (typeof value === "string") yield value;
  else if (typeof value === "object" && value !== null) for (const one of Object.values(value)) yield* textsIn(one);
}

/** Ids of the steps whose ends the step reads. */
export function readsOf(asked: Asked, key: string, bounds: WorkflowBounds): readonly string[] {
  const step = asked.steps.get(key);
  if (step === undefined) return [];
  const file = step.type === "agent" && step.promptFile !== undefined ? asked.files[step.promptFile] : undefined;
  const sources = [...textsIn(step), ...(file === undefined ? [] : [file])].flatMap((text) =>
    readTemplate(text).holes.map(({ source }) => source),
  );
  if (typeof step.if === "string") sources.push(step.if);
  const read = sources.flatMap((source) => expressionOf(asked, source, bounds).references);
  return [...new Set(read.flatMap(({ root, path }) => (root === "steps" ? (path[0] ?? []) : [])))];
}

/** A step as expressions read it; one that was skipped has its status alone. */
const valuesOf = ({ status, output, result }: EndedStep): object => ({
  status,
  output: output === null ? null : (JSON.parse(output) as unknown),
  exitCode: result?.exitCode ?? null,
  stdoutTail: result?.stdoutTail ?? "",
  stderrTail: result?.stderrTail ?? "",
});

/** @param ended those that `readsOf` named */
export function decide(asked: Asked, ask: StepToJudge, ended: readonly EndedStep[], bounds: DecideBounds): StepVerdict {
  const { stepId, run } = ask;
  const fail = (reason: string, message: string): StepVerdict => ({
    stepId,
    does: "fail",
    class: "env_invalid",
    reason,
    message,
  });
  const step = asked.steps.get(ask.definitionStep);
  const { target } = run;
  ensure(step !== undefined && target.kind === "workflow", "a step that is asked about is of its run's definition");
  let place = "its definition";
  try {
    const ready = readiness(ask.needs, ask.condition);
    ensure(ready.does === "start" || ready.does === "ask", "a step is asked about when it could start");
    const { env: _, ...known } = valuesFor(asked, run, target, ended, ready);
    const isItem = ask.item !== null;
    place = "env";
    const env = render(asked, asked.workflow.definition.env ?? {}, { ...known, env: {} }, bounds) as EnvTexts;
    const values: Values = { ...known, env, ...(ask.item === null ? {} : { item: JSON.parse(ask.item) as unknown }) };
    place = "if";
    if (!isItem && ready.does === "ask" && !holds(asked, step, values, bounds))
      return { stepId, does: "skip", reason: "condition" };
    if (step.foreach !== undefined && !isItem) {
      place = "foreach";
      const { concurrency = null } = step;
      return { stepId, does: "each", items: itemsOf(asked, step.foreach, values, bounds), concurrency };
    }
    place = "";
    const put = (value: unknown, at: string): unknown => {
      place = at;
      return render(asked, value, values, bounds);
    };
    return { stepId, does: "start", ...specOf(asked, step, target, run.policy, env, put, bounds) };
  } catch (error) {
    // A bug is none of the definition: it is told where bugs are told.
    if (!(error instanceof AppError)) throw error;
    return fail("expression", `${place === "" ? "" : `${place}: `}${error.message}`);
  }
}

type EnvTexts = { readonly [name: string]: string };

function valuesFor(
  asked: Asked,
  run: RunRecord,
  target: WorkflowTarget,
  ended: readonly EndedStep[],
  ready: { readonly does: string; readonly failed?: boolean; readonly met?: boolean },
): Values {
  return {
    inputs: target.inputs,
    steps: Object.fromEntries(ended.map((one) => [one.key, valuesOf(one)])),
    run: {
      id: run.id,
      workflow: asked.workflow.definition.name,
      loop: run.loopName,
      slot: run.slotAt === null ? null : new Date(run.slotAt).toISOString(),
    },
    env: {},
    status: { failed: ready.failed === true, met: ready.met !== false },
  };
}

function holds(asked: Asked, step: StepForm, values: Values, bounds: WorkflowBounds): boolean {
  if (step.if === undefined) return true;
  const value = typeof step.if === "boolean" ? step.if : evaluate(expressionOf(asked, step.if, bounds), values, bounds);
  if (typeof value === "boolean") return value;
  throw new AppError(
    "invalid",
    "wrong_type",
    `${String(step.if).trim()} is ${JSON.stringify(value)}, not true or false`,
  );
}

/** The list that a step is done for, each item as JSON text. */
function itemsOf(asked: Asked, foreach: string | readonly unknown[], values: Values, bounds: DecideBounds): string[] {
  let list: unknown = foreach;
  if (typeof foreach === "string") {
    const [hole] = readTemplate(foreach).holes;
    ensure(hole !== undefined, "a list is written out, or is one expression");
    list = evaluate(expressionOf(asked, hole.source, bounds), values, bounds);
  } else list = foreach.map((one) => render(asked, one, values, bounds));
  if (!Array.isArray(list))
    throw new AppError("invalid", "wrong_type", `it is ${JSON.stringify(list)?.slice(0, 200)}, not a list`);
  if (list.length > bounds.foreachItems)
    throw new AppError("invalid", "too_large", `it has ${list.length} items, more than ${bounds.foreachItems}`);
  return list.map((one: unknown) => JSON.stringify(one));
}

/** A value with its templates filled in; texts with others in them stay texts. */
function render(asked: Asked, value: unknown, values: Values, bounds: DecideBounds): unknown {
  if (typeof value === "string") {
    const template = readTemplate(value);
    if (template.holes.length === 0) return value;
    const found = template.holes.map(({ source }) => evaluate(expressionOf(asked, source, bounds), values, bounds));
    return textOf(renderTemplate(template, found));
  }
  if (Array.isArray(value)) return value.map((one) => render(asked, one, values, bounds));
  if (typeof value === "object" && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, render(asked, one, values, bounds)]));
  return value;
}

const folderOf = (file: string): string => file.slice(0, Math.max(1, file.lastIndexOf("/")));

/** A file as a step names it, from the workflow's own on. */
export const besideFile = (file: string, path: string): string =>
  path.startsWith("/") ? path : `${folderOf(file).replace(/\/$/, "")}/${path}`;

type ProcessStep = Extract<StepForm, { type: "command" | "gate" | "check" | "agent" }>;
const isProcess = (step: StepForm): step is ProcessStep => RUN.has(step.type);

function specOf(
  asked: Asked,
  step: StepForm,
  of: WorkflowTarget,
  run: RunPolicy,
  env: EnvTexts,
  put: (value: unknown, at: string) => unknown,
  bounds: DecideBounds,
): { readonly spec: StepSpec; readonly prompt?: string } {
  if (!isProcess(step)) throw new AppError("invalid", "not_available", "this version does not run such a step");
  const defaults: NonNullable<Definition["defaults"]> = asked.workflow.definition.defaults ?? {};
  const cwd = step.cwd ?? defaults.cwd;
  const around = {
    cwd: cwd === undefined ? of.cwd : besideFile(of.file, put(cwd, "cwd") as string),
    env: { ...of.env, ...env, ...(put(step.env ?? {}, "env") as EnvTexts) },
    envPass: [...new Set([...of.envPass, ...(defaults.envPass ?? []), ...(step.envPass ?? [])])],
    secrets: { ...of.secrets, ...step.secrets },
    expect: step.expect ?? [],
    output: of.output,
  };
  const isAgent = step.type === "agent";
  const worktree = step.worktree ?? defaults.worktree ?? of.worktree ?? (isAgent ? "auto" : "off");
  const prompt = isAgent
    ? (put(
        step.prompt ?? asked.files[step.promptFile ?? ""] ?? "",
        step.prompt === undefined ? "promptFile" : "prompt",
      ) as string)
    : undefined;
  if (prompt !== undefined && new TextEncoder().encode(prompt).length > bounds.promptBytes)
    throw new AppError("invalid", "too_large", `the prompt has more than ${bounds.promptBytes} bytes`);
  if (prompt?.includes("\0") === true) throw new AppError("invalid", "nul_byte", "the prompt holds a NUL byte");
  if (prompt?.trim() === "") throw new AppError("invalid", "prompt_blank", "the prompt is blank");
  const target = isAgent
    ? agentOf(step, defaults, put, { ...around, worktree })
    : valid(commandTarget, {
        kind: "command",
        argv: step.shell === undefined ? put(step.command, "command") : ["/bin/sh", "-c", step.shell],
        shell: step.shell !== undefined,
        worktree,
        ...around,
      });
  const retry = step.retry ?? defaults.retry;
  const none = (ms: number): number | null => (ms === 0 ? null : ms);
  const policy: RunPolicy = {
    ...run,
    attempts: retry?.attempts ?? 1,
    ...(retry?.backoff === undefined ? {} : { backoffMs: retry.backoff }),
    timeoutMs: none(step.timeout ?? defaults.timeout ?? (isAgent ? bounds.agentTimeoutMs : 0)),
    idleTimeoutMs: none(step.idleTimeout ?? defaults.idleTimeout ?? (isAgent ? bounds.agentIdleTimeoutMs : 0)),
    priority: step.priority ?? defaults.priority ?? run.priority,
  };
  const spec: StepSpec = {
    target,
    policy,
    base: of.cwd,
    ...(step.type === "gate" && step.blockedExitCodes !== undefined ? { blockedExitCodes: step.blockedExitCodes } : {}),
    ...(step.output === undefined ? {} : { output: step.output as NonNullable<StepSpec["output"]> }),
    ...(step.lock === undefined ? {} : { lock: step.lock }),
  };
  return { spec, ...(prompt === undefined ? {} : { prompt }) };
}

/** The prompt of an agent is kept by the store, which then names it. */
const NO_PROMPT = { digest: "0".repeat(64), bytes: 1, head: "" };

function agentOf(
  step: Extract<StepForm, { type: "agent" }>,
  defaults: NonNullable<Definition["defaults"]>,
  put: (value: unknown, at: string) => unknown,
  around: object,
): ProcessTarget {
  const provider = step.provider ?? defaults.provider;
  const named = step.account ?? defaults.account ?? "default";
  const [owner, name] = named.includes(":") ? named.split(":", 2) : [provider, named];
  if (owner !== provider)
    throw new AppError("invalid", "wrong_account", `account: ${named} is no account of ${provider ?? "an agent"}`);
  const model = step.model ?? defaults.model;
  return valid(agentTarget, {
    kind: "agent",
    provider,
    command: step.command === undefined ? null : put(step.command, "command"),
    prompt: NO_PROMPT,
    model: model ?? null,
    // Whoever judges the work of others changes nothing of it.
    permission: step.permission ?? defaults.permission ?? (step.role === "verifier" ? "read-only" : "workspace-write"),
    reason: step.reason ?? null,
    allowRoot: step.allowRoot === true,
    untested: step.untested === true,
    account: name,
    ...around,
  });
}

interface Schema<T> {
  safeParse(value: unknown):
    | { readonly success: true; readonly data: T }
    | {
        readonly success: false;
        readonly error: {
          readonly issues: readonly { readonly message: string; readonly path: readonly PropertyKey[] }[];
        };
      };
}

/** What was rendered as a target, or why it is none: what a value holds is seen only here. */
function valid<T>(schema: Schema<T>, value: unknown): T {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  const issue = read.error.issues[0];
  throw new AppError("invalid", "bad_value", `${issue?.path.join(".") ?? "it"}: ${issue?.message ?? "is refused"}`);
}
