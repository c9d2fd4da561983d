/** What loops and runs have in common: the inputs that say what to run and how, and the records made from them. */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { formatDuration } from "../../core/duration.ts";
import type { Limits } from "../../core/limits.ts";
import type { LoopPolicy, RunPolicy } from "../../core/loop.ts";
import type { Schedule, ScheduleFlags } from "../../core/schedule.ts";
import type { Target } from "../../core/target.ts";
import { typedInputs } from "../../core/target-parts.ts";
import {
  agentCandidate,
  agentFields,
  agentFlagIn,
  namedSecrets,
  type PromptBytes,
  refuseKeys,
  requireAgent,
  settleWorktree,
  WORKTREE_MODES,
} from "../accounts/agent-target.ts";
import type { Warning } from "../documents.ts";
import {
  badInput,
  choice,
  duration,
  type Field,
  flag,
  type InputOf,
  integer,
  pairs,
  text,
  texts,
  folder,
} from "../fields.ts";
import { requireHostZone } from "../loops/host-zone.ts";
import type { StoreContext } from "../operation.ts";
import { readAs, type Schema } from "../schema.ts";

/** An input of a part that does not exist yet: read, and refused by name. */
function absent(about: string, part: string, { value = true }: { readonly value?: boolean } = {}): Field<undefined> {
  const refuse = (path: string): never => {
    throw new AppError("invalid", "not_available", `${path} needs ${part}, which this version does not have`, {
      path,
      hint: "Leave it out. `drover version` says which version this is.",
    });
  };
  const made = text(about, { later: true });
  return {
    ...made,
    placeholder: value ? "TEXT" : null,
    many: true,
    read: (_text, path) => refuse(path),
    check: (given, path) => (given === undefined || given === null || given === false ? undefined : refuse(path)),
  };
}

export const targetFields = {
  command: texts("the command and its arguments, after --", { empty: true, placeholder: "COMMAND" }),
  shell: text("a shell string to run with /bin/sh -c", { placeholder: "STRING", free: true }),
  cwd: folder("working directory", { fallback: "where the command is typed" }),
  env: pairs("an environment variable, stored with the definition"),
  envPass: texts("a variable to pass on from the daemon's environment", { placeholder: "NAME", commas: true }),
  secret: pairs("a variable whose value comes from env:NAME, file:PATH or cmd:STRING at each start, never stored", {
    declared: "secrets",
  }),
  expect: texts("what must be seen for success: output, changes, commit, file:PATH, cmd:STRING", {
    placeholder: "WHAT",
  }),
  output: choice("how output is kept; pipe is for programs that empty their own outputs", ["files", "pipe"], {
    fallback: "files",
  }),
  ...agentFields,
  worktree: choice("whether to work in a git worktree of its own", WORKTREE_MODES, {
    fallback: "off for commands, auto for agents",
  }),
  workflow: folder("the workflow's file, YAML or JSON", { placeholder: "FILE", completes: "file" }),
  input: pairs("an input of the workflow", { declared: "inputs" }),
  pool: absent("the pool of accounts to use", "pools"),
  project: absent("the project that the work belongs to", "projects"),
} as const;

export const runPolicyFields = {
  attempts: integer("tries until the run has failed", { min: 1, max: 1_000, fallback: "1" }),
  backoffMs: duration("first pause before another try; doubles up to an hour", { fallback: "60s" }),
  timeoutMs: duration("longest time of one try while the host is awake; 0s for none", {
    fallback: "none, 2h for agents",
  }),
  idleTimeoutMs: duration("longest time without output, of an agent without progress; 0s for none", {
    fallback: "none, 15m for agents",
  }),
  graceMs: duration("time from TERM to KILL", { fallback: "10s" }),
  priority: integer("place in the queue: a point is worth a minute of waiting", {
    min: -1_000,
    max: 1_000,
    fallback: "0",
  }),
  onLost: choice("what follows when nobody knows how a try ended", ["auto", "retry", "fail"], { fallback: "auto" }),
  onFinish: text("a shell command for each end; the run as JSON on its standard input", {
    placeholder: "CMD",
    empty: true,
    free: true,
  }),
  onFailure: text("a shell command for the first failure and for the recovery", {
    placeholder: "CMD",
    empty: true,
    free: true,
  }),
  label: texts("a label to find runs by", { placeholder: "K", commas: true, declared: "labels" }),
} as const;

export const loopPolicyFields = {
  catchUp: choice("what becomes of instants that were missed", ["latest", "all", "none"], { fallback: "latest" }),
  catchUpLimit: integer("how many missed instants --catch-up all runs", { min: 1, max: 1_000, fallback: "50" }),
  overlap: choice("what an instant does while an earlier run is at work", ["skip", "queue", "allow", "cancel"], {
    fallback: "skip",
  }),
  queueLimit: integer("runs that wait with --overlap queue", { min: 1, max: 10_000, fallback: "100" }),
  jitterMs: duration("puts each start off by a part of this, always the same for one slot", { fallback: "0s" }),
  expiresAt: text("when the loop ends; none for never", { placeholder: "T" }),
  expiresAfterRuns: integer("successes in a row after which the loop ends; 0 for never", {
    min: 0,
    max: 1_000_000_000,
  }),
  breaker: integer("equal failures in a row that pause the loop; 0 for never", {
    min: 0,
    max: 1_000_000,
    fallback: "5",
  }),
} as const;

export const scheduleFields = {
  every: text("a fixed period", { placeholder: "D" }),
  cron: text("a cron expression of 5 fields, or 6 with seconds first", { placeholder: "EXPR" }),
  tz: text("the IANA zone of the expression or of a local time", {
    placeholder: "ZONE",
    fallback: "this host's",
    completes: "zone",
  }),
  at: text("one instant: ISO-8601, a local date and time, or +30m", { placeholder: "TIME" }),
  dynamic: flag("each run says when the next one is: nextAt or nextAfterMs in its output"),
} as const;

/** All that says what a loop is, beside its name. */
export const loopFields = { ...scheduleFields, ...targetFields, ...loopPolicyFields, ...runPolicyFields } as const;
export type LoopInput = InputOf<typeof loopFields>;

const OF_AGENTS = Object.keys(agentFields);

/** How help orders the flags of what starts work. */
export const workSections: readonly (readonly [title: string, keys: readonly string[]])[] = [
  ["When it runs", Object.keys(scheduleFields)],
  ["What it runs", Object.keys(targetFields).filter((key) => !OF_AGENTS.includes(key))],
  ["An agent", OF_AGENTS],
  ["Instants that were missed or meet an earlier run, and when it ends", Object.keys(loopPolicyFields)],
  ["Each run", Object.keys(runPolicyFields)],
];

type TargetInput = InputOf<typeof targetFields>;
type RunPolicyInput = InputOf<typeof runPolicyFields>;
type LoopPolicyInput = InputOf<typeof loopPolicyFields>;

/** Checks with a schema of core; its first issue becomes an AppError invalid that names the input. @param hint the usual one of its path */
export function checkWith<T>(
  schema: Schema<T>,
  value: unknown,
  pathOf: (path: readonly PropertyKey[]) => string,
  code = "bad_input",
  hint?: string,
): T {
  const { data, wrong } = readAs(schema, value);
  if (wrong === null) return data;
  const path = pathOf(wrong.path);
  throw badInput(path, `${path}: ${wrong.message}`, hint ?? hintFor(path), code);
}

/** What to do about an input that a schema refuses, by its name on the command line. */
const SCHEMA_HINTS: { readonly [path: string]: string } = {
  name: "Choose another name, as in nightly-report.",
  command: "Give a program and its arguments after --, or --shell STRING.",
  "--cwd": "Give the folder in which it runs.",
  "--env": "Choose another name, as in --env MODE=fast.",
  "--env-pass": "Give the name of a variable, as in --env-pass SSH_AUTH_SOCK.",
  "--secret": "Write it as in --secret API_KEY=env:API_KEY or API_KEY=file:/path.",
  "--expect": "Write it as in --expect output or --expect file:report.txt.",
  "--label": "Write it as in --label nightly,team/build.",
  "--account": "Give an account's name: `drover account ls` lists them.",
  "--on-finish": "Put what is long into a script, and give its path.",
  "--on-failure": "Put what is long into a script, and give its path.",
};
const hintFor = (path: string): string => SCHEMA_HINTS[path.split(" ")[0] ?? ""] ?? "`--help` says what it takes.";

const TARGET_FLAGS: { readonly [key: string]: string } = {
  argv: "command",
  envPass: "--env-pass",
  secrets: "--secret",
  labels: "--label",
  provider: "--agent",
};
const flagAt = (path: readonly PropertyKey[]): string => {
  const [first = "target", second] = path.map(String);
  const name =
    TARGET_FLAGS[first] ?? `--${first.replace(/Ms$/, "").replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  return second === undefined || /^\d+$/.test(second) ? name : `${name} ${second}`;
};

const hasTarget = (input: TargetInput): boolean =>
  (input.command !== undefined && input.command.length > 0) || input.shell !== undefined;

/** `output,changes` are two expectations; a comma in a path or a command is part of it. */
const splitWords = (one: string): string[] =>
  /^(output|changes|commit)(,(output|changes|commit))+$/.test(one) ? one.split(",") : [one];

/** A target that was described, and not looked at yet. */
export interface TargetDraft {
  readonly target: Target;
  /** A prompt that is to be stored; null when there is none, or the one before stays. */
  readonly prompt: PromptBytes | null;
}

/** A target, and what is worth saying of it. */
export interface MadeTarget extends TargetDraft {
  readonly warnings: readonly Warning[];
}

/**
 * The target that the input describes, over one that is there (an edit): what is not given stays. Nothing is stored, and
 * this host is not asked. Errors: AppError invalid with the input's path.
 */
export async function describeTargetOf(
  context: Pick<StoreContext, "settings" | "isRoot">,
  input: TargetInput,
  before: Target | null,
): Promise<TargetDraft> {
  const file = workflowOf(input, before);
  if (file !== null) return describeWorkflow(context, file, input, before);
  const isAgent = wantsAgent(input, before);
  const around = surroundings(input, before);
  const { agentTarget, commandTarget } = await import("../../core/target.ts");
  if (isAgent) {
    const old = before?.kind === "agent" ? before : null;
    const { candidate, prompt } = agentCandidate(context, input, old);
    const worktree = input.worktree ?? old?.worktree ?? "auto";
    const target = checkWith(
      agentTarget,
      { ...candidate, prompt: prompt?.ref ?? old?.prompt, worktree, ...around },
      flagAt,
    );
    return { target, prompt };
  }
  const old = before?.kind === "command" ? before : null;
  const argv =
    input.shell !== undefined ? ["/bin/sh", "-c", input.shell] : input.command?.length ? input.command : old?.argv;
  const target = checkWith(
    commandTarget,
    {
      kind: "command",
      argv,
      shell: input.shell !== undefined || (!hasTarget(input) && old?.shell === true),
      ...present({ worktree: input.worktree ?? old?.worktree }),
      ...around,
    },
    flagAt,
  );
  return { target, prompt: null };
}

/**
 * A described target as this host takes it now, its worktree settled.
 * @param given which input the prompt came by, and the variables that were given now: of others was said what there was to say
 * Errors: AppError invalid, not_found `cwd_not_found`, `command_not_found`, `agent_not_found`, `account_not_found` for what
 * this host lacks.
 */
export async function admitTarget(
  context: StoreContext,
  { target, prompt }: TargetDraft,
  given: { readonly promptFlag: string; readonly env: Readonly<Record<string, string>> | undefined },
): Promise<MadeTarget> {
  requireCwd(context, target.cwd);
  if (target.kind === "agent") await refuseKeys(context, given.env);
  if (target.kind === "agent") await requireAgent(context, target);
  else if (
    target.kind === "command" &&
    !target.shell &&
    (await context.findProgram(target.argv[0], target.cwd, target.env["PATH"])) === null
  )
    throw noProgram(context, target.argv[0], target.cwd);
  const writes = target.kind === "agent" && target.permission !== "read-only";
  const { mode, warnings } = await settleWorktree(context, target.worktree ?? "off", target.cwd, writes);
  if (target.kind === "agent") {
    const { checkAtDoor } = await import("../accounts/agent-door.ts");
    await checkAtDoor(context, { ...target, worktree: mode }, prompt, given.promptFlag);
  }
  return {
    target: target.worktree === undefined ? target : { ...target, worktree: mode },
    warnings: [...warnings, ...namedSecrets(given.env)],
    prompt,
  };
}

/**
 * The target that the input describes, over one that is there, as this host takes it now. Nothing is stored.
 * Errors: those of `describeTargetOf` and `admitTarget`.
 */
export async function makeTarget(
  context: StoreContext,
  input: TargetInput,
  before: Target | null,
): Promise<MadeTarget> {
  const promptFlag = input.promptFile === undefined ? "--prompt" : "--prompt-file";
  return admitTarget(context, await describeTargetOf(context, input, before), { promptFlag, env: input.env });
}

/** Stores the text that a target names, a prompt or a definition, before the target itself is stored: when nothing can be refused any more. */
export async function keepPrompt(context: StoreContext, { target, prompt }: TargetDraft): Promise<void> {
  if (prompt === null) return;
  await context.store.prompts.put({ digest: prompt.ref.digest, content: prompt.content, bytes: prompt.ref.bytes });
  if (target.kind === "workflow")
    await (await import("../workflows/workflow-target.ts")).keepSteps(context, target, prompt.content);
}

/** The workflow's file that the input means, over what is there; null: it means something else. Errors: AppError invalid `contradiction`, `not_available`. */
function workflowOf(input: TargetInput, before: Target | null): string | null {
  const other =
    input.shell !== undefined
      ? "--shell"
      : input.command !== undefined && input.command.length > 0
        ? "-- COMMAND"
        : input.agent !== undefined
          ? "--agent"
          : agentFlagIn(input);
  const file = input.workflow ?? (other === null && before?.kind === "workflow" ? before.file : null);
  if (file === null) {
    if (input.input === undefined) return null;
    throw badInput("--input", "commands and agents take no inputs: workflows do", "Use --env K=V.", "contradiction");
  }
  if (input.workflow !== undefined && other !== null)
    throw badInput(other, `${other} and a workflow contradict each other`, "Give one of them.", "contradiction");
  if (input.expect !== undefined)
    throw badInput("--expect", "a workflow says for each step what it expects", "Write it into the file: expect.");
  if (!/\.(?:ya?ml|json)$/i.test(file))
    throw badInput(
      "--workflow",
      `${JSON.stringify(file.split("/").at(-1))} is no workflow's file`,
      "A workflow's file ends in .yaml, .yml or .json. A command goes after --.",
    );
  return file;
}

async function describeWorkflow(
  { settings }: Pick<StoreContext, "settings">,
  file: string,
  input: TargetInput,
  before: Target | null,
): Promise<TargetDraft> {
  const { pinWorkflow } = await import("../workflows/workflow-target.ts");
  const { workflowTarget } = await import("../../core/target.ts");
  const kept = before?.kind === "workflow" && before.file === file ? typedInputs(before) : {};
  const { target, prompt } = await pinWorkflow(file, input.input ?? kept, settings.limits);
  return {
    target: checkWith(
      workflowTarget,
      {
        kind: "workflow",
        file,
        ...target,
        ...present({ worktree: input.worktree ?? before?.worktree }),
        ...surroundings(input, before),
      },
      flagAt,
    ),
    prompt,
  };
}

/** Whether the input, over what is there, means an agent. Errors: AppError invalid `contradiction`, `missing_target`. */
function wantsAgent(input: TargetInput, before: Target | null): boolean {
  const hasCommand = input.command !== undefined && input.command.length > 0;
  if (input.shell !== undefined && hasCommand)
    throw badInput("--shell", "--shell and -- COMMAND contradict each other", "Give one of them.", "contradiction");
  const flag = agentFlagIn(input);
  // What stands after -- are the arguments of a custom agent's program where that is named.
  const names =
    input.shell !== undefined ? "--shell" : hasCommand && input.agentCommand === undefined ? "-- COMMAND" : null;
  const agent = input.agent === undefined ? flag : "--agent";
  if (names !== null) {
    if (agent === null) return false;
    throw badInput(
      agent,
      `${agent} and ${names} contradict each other`,
      "Give one of them; the arguments of a custom agent go after --, with --agent-command.",
      "contradiction",
    );
  }
  if (input.agent !== undefined || before?.kind === "agent") return true;
  if (flag !== null)
    throw badInput(
      flag,
      `${flag} is for an agent, and none is named`,
      "Add --agent claude, codex or custom.",
      "missing_target",
    );
  if (before === null)
    throw badInput(
      "command",
      "there is nothing to run",
      "Give a command after --, --shell STRING, or --agent PROVIDER with --prompt TEXT.",
      "missing_target",
    );
  return false;
}

function surroundings(input: TargetInput, before: Target | null) {
  const cwd = input.cwd ?? before?.cwd;
  if (cwd === undefined)
    throw badInput("cwd", "the working directory is missing", "Give an absolute path.", "missing_value");
  return {
    cwd,
    env: input.env ?? before?.env ?? {},
    envPass: input.envPass ?? before?.envPass ?? [],
    secrets: input.secret ?? before?.secrets ?? {},
    expect: input.expect?.flatMap(splitWords) ?? before?.expect ?? [],
    output: input.output ?? before?.output ?? "files",
  };
}

function requireCwd(context: StoreContext, cwd: string): void {
  if (context.isFolder(cwd)) return;
  const isThere = existsSync(cwd);
  throw new AppError(
    "not_found",
    "cwd_not_found",
    isThere
      ? `the working directory ${JSON.stringify(cwd)} is no folder`
      : `the working directory ${JSON.stringify(cwd)} is not there`,
    {
      path: "--cwd",
      hint: isThere
        ? "Name the folder that holds it with --cwd."
        : "Make the folder first, or name another with --cwd.",
    },
  );
}

/** Why a word is no program: a path may name a folder, or a file that nobody made executable. */
function noProgram(context: StoreContext, name: string, cwd: string): AppError {
  const file = name.includes("/") ? resolve(cwd, name) : null;
  const [what, hint] =
    file !== null && context.isFolder(file)
      ? ["is a folder", "Name a program in it."]
      : file !== null && existsSync(file)
        ? ["may not be executed", `Make it so with chmod +x ${file}, or name its interpreter first.`]
        : [
            "is not found",
            "Check its spelling and PATH, give its full path, or use --shell for a shell's own command.",
          ];
  return new AppError("not_found", "command_not_found", `the command ${JSON.stringify(name)} ${what}`, {
    path: "command",
    hint,
  });
}

const present = <T extends object>(values: T): Partial<T> =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<T>;
const noneWhen = <T>(value: T | undefined, none: T): T | null | undefined => (value === none ? null : value);

const runPolicyOf = (input: RunPolicyInput) =>
  present({
    attempts: input.attempts,
    backoffMs: input.backoffMs,
    timeoutMs: noneWhen(input.timeoutMs, 0),
    idleTimeoutMs: noneWhen(input.idleTimeoutMs, 0),
    graceMs: input.graceMs,
    priority: input.priority,
    onLost: input.onLost,
    onFinish: noneWhen(input.onFinish, ""),
    onFailure: noneWhen(input.onFailure, ""),
    labels: input.label,
  });

/** Time limits that follow from what runs, where none are given: an agent without them would never be ended. */
export const limitsOf = (kind: Target["kind"], limits: Limits) =>
  kind === "agent"
    ? { timeoutMs: limits.agentTimeoutMs, idleTimeoutMs: limits.agentIdleTimeoutMs }
    : { timeoutMs: null, idleTimeoutMs: null };

/** What a workflow says for each step is not said for the run. Errors: AppError invalid. */
function refuseStepPolicy(input: RunPolicyInput): void {
  const said = (["attempts", "backoffMs", "timeoutMs", "idleTimeoutMs"] as const).find(
    (key) => input[key] !== undefined,
  );
  if (said === undefined) return;
  const flag = flagAt([said]);
  throw badInput(
    flag,
    `${flag} is said by a workflow itself, for each step`,
    "Write it into the file: defaults: { timeout: 10m, retry: { attempts: 2 } }.",
    "contradiction",
  );
}

/** @param kind of what the run runs. Errors: AppError invalid. */
export async function makeRunPolicy(
  { settings }: StoreContext,
  input: RunPolicyInput,
  kind: Target["kind"],
): Promise<RunPolicy> {
  const { runPolicy } = await import("../../core/loop.ts");
  if (kind === "workflow") refuseStepPolicy(input);
  return checkWith(runPolicy, { ...limitsOf(kind, settings.limits), ...runPolicyOf(input) }, flagAt);
}

/** The policy that is there, and what ran under it. */
export interface PolicyBefore {
  readonly policy: LoopPolicy;
  readonly kind: Target["kind"];
}

/** A time limit that was not chosen goes with the kind that it was made for. */
function keptLimits({ policy, kind: old }: PolicyBefore, kind: Target["kind"], limits: Limits) {
  const [was, is] = [limitsOf(old, limits), limitsOf(kind, limits)];
  const keep = (key: "timeoutMs" | "idleTimeoutMs") => (policy[key] === was[key] ? is[key] : policy[key]);
  return { timeoutMs: keep("timeoutMs"), idleTimeoutMs: keep("idleTimeoutMs") };
}

/** The policy that the input describes, over one that is there. Errors: AppError invalid, `bad_time`. */
export async function makeLoopPolicy(
  context: Pick<StoreContext, "settings" | "clock" | "hostZone">,
  input: RunPolicyInput & LoopPolicyInput & { readonly tz?: string | undefined },
  kind: Target["kind"],
  before: PolicyBefore | null,
): Promise<LoopPolicy> {
  const { loopPolicy } = await import("../../core/loop.ts");
  if (kind === "workflow") refuseStepPolicy(input);
  const { parseTime } = await import("../../core/schedule.ts");
  const { limits } = context.settings;
  const expiresAt =
    input.expiresAt === undefined || input.expiresAt === "none"
      ? noneWhen(input.expiresAt, "none")
      : parseTime(input.expiresAt, { now: context.clock.now(), hostZone: context.hostZone, path: "--expires-at" });
  const timeLimits =
    before === null ? limitsOf(kind, limits) : before.kind === kind ? {} : keptLimits(before, kind, limits);
  return checkWith(
    loopPolicy,
    {
      ...before?.policy,
      ...timeLimits,
      ...runPolicyOf(input),
      ...present({
        catchUp: input.catchUp,
        catchUpLimit: input.catchUpLimit,
        overlap: input.overlap,
        queueLimit: input.queueLimit,
        jitterMs: input.jitterMs,
        expiresAt,
        expiresAfterRuns: noneWhen(input.expiresAfterRuns, 0),
        breaker: input.breaker,
      }),
    },
    flagAt,
  );
}

/** The schedule that the input describes; null when it says nothing of one. Errors: AppError invalid of `parseSchedule`. */
export async function makeSchedule(
  context: Pick<StoreContext, "clock" | "hostZone">,
  input: ScheduleFlags,
): Promise<Schedule | null> {
  const { every, cron, tz, at, dynamic } = input;
  if (every === undefined && cron === undefined && at === undefined && tz === undefined && dynamic !== true)
    return null;
  const { parseSchedule } = await import("../../core/schedule.ts");
  const isLocal = cron !== undefined || (at !== undefined && !/^\+|z$|[+-]\d\d:?\d\d$/i.test(at));
  const hostZone =
    tz === undefined && isLocal ? requireHostZone(process.env["TZ"], context.hostZone) : context.hostZone;
  return parseSchedule({ every, cron, tz, at, dynamic }, { now: context.clock.now(), hostZone });
}

/** Refuses a jitter that may carry a start past the next instant. Errors: AppError invalid `bad_input`. */
export function checkJitter(schedule: Schedule, { jitterMs }: LoopPolicy): void {
  if (schedule.kind !== "interval" || jitterMs < schedule.everyMs) return;
  throw badInput(
    "--jitter",
    `a jitter of ${formatDuration(jitterMs)} is not shorter than the period of ${formatDuration(schedule.everyMs)}`,
    "Choose one that is shorter than --every.",
  );
}

/** Checks the name of a loop. Errors: AppError invalid `bad_name`. */
export async function checkLoopName(name: string): Promise<string> {
  const { loopName } = await import("../../core/loop.ts");
  return checkWith(loopName, name, () => "name", "bad_name");
}
