/** What a workflow's file says: its form as data, for the reader and for the JSON Schema of editors. */
import { z } from "zod";
import { DURATION_PATTERN, parseDuration } from "../duration.ts";
import { AppError } from "../errors.ts";
import { loopName } from "../loop.ts";
import { environmentName, expectation, permissions, providers, secretSource, worktreeModes } from "../target.ts";

/** Why a value is refused, where the schema library alone would not say what to do. */
const because = (code: string, hint: string) => ({ params: { code, hint } });

const text = (about: string) =>
  z
    .string()
    .refine((of) => !of.includes("\0"), {
      error: "it holds a NUL byte",
      ...because("nul_byte", "No process can take it."),
    })
    .describe(about);
const filled = (about: string) => text(about).min(1, "it is empty");

const isDuration = (of: string): boolean => {
  try {
    return parseDuration(of) >= 0;
  } catch (error) {
    if (error instanceof AppError) return false;
    throw error;
  }
};
const duration = (about: string) =>
  z
    .string()
    .refine(isDuration, {
      error: "it is not a duration",
      ...because("bad_duration", "Write whole numbers with units, largest first: 500ms, 90s, 15m, 2h, 1d, 1h30m."),
    })
    .meta({ description: about, pattern: DURATION_PATTERN })
    .transform((of) => parseDuration(of));

/** A name that expressions and processes can carry. */
const NAME = /^(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}$/;
const STEP_ID = /^(?!__)[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const stepId = z
  .string()
  .regex(STEP_ID, "a step's id is up to 64 letters, digits, _ and -, and begins with a letter")
  .describe("What the step is called.");
const word = (about: string) =>
  z
    .string()
    .regex(/^[a-z0-9][a-z0-9._:-]{0,63}$/, "this is up to 64 small letters, digits and . _ : -")
    .describe(about);

const retry = z
  .strictObject({
    attempts: z.int().min(1).max(1_000).describe("Tries until the step has failed."),
    backoff: duration("First pause before another try; doubles up to an hour.").optional(),
  })
  .describe("How often a step that fails is tried.");

/** What a step and the defaults of all have in common. */
const shared = {
  worktree: z.enum(worktreeModes).describe("Whether the run works in a git worktree of its own.").optional(),
  account: filled("The account that an agent works under: NAME or PROVIDER:NAME.").optional(),
  timeout: duration("Longest time of one try while the host is awake; 0s for none.").optional(),
  idleTimeout: duration("Longest time without output, of an agent without progress; 0s for none.").optional(),
  retry: retry.optional(),
  priority: z
    .int()
    .min(-1_000)
    .max(1_000)
    .describe("Place in the queue: a point is worth a minute of waiting.")
    .optional(),
};
const around = {
  cwd: filled("Working directory, from the file's folder on.").optional(),
  env: z.record(environmentName, text("A value, as data.")).describe("Environment variables.").optional(),
  envPass: z.array(environmentName).describe("Variables to pass on from the daemon's environment.").optional(),
  secrets: z
    .record(environmentName, secretSource)
    .describe("Variables whose values come from env:NAME, file:PATH or cmd:STRING at each start, never stored.")
    .optional(),
  expect: z
    .array(expectation)
    .max(32)
    .describe("What must be seen for success: output, changes, commit, file:PATH, cmd:STRING.")
    .optional(),
};
const ofAgents = {
  provider: z.enum(providers).describe("The agent.").optional(),
  model: filled("The agent's model.").optional(),
  permission: z.enum(permissions).describe("What the agent may do.").optional(),
};

const step = {
  id: stepId,
  description: text("What the step is for.").optional(),
  needs: z.array(stepId).describe("Steps that end before this one starts.").optional(),
  if: z
    .union([text("An expression, without ${{ }}: the step is skipped where it is false."), z.boolean()])
    .describe("An expression, without ${{ }}: the step is skipped where it is false.")
    .optional(),
  continueOnFailure: z.boolean().describe("What needs the step goes on whatever became of it.").optional(),
  output: z.unknown().describe("The JSON Schema of what the step hands over.").optional(),
  role: word(
    "Who does it, as in worker and verifier: a verifier sees the worker's tree and changes nothing.",
  ).optional(),
  lock: word("A name that one step holds at a time, in all runs.").optional(),
  foreach: z
    .union([text("A list, as one ${{ }}: the step is done for each `item`."), z.array(z.unknown())])
    .describe("A list, as one ${{ }} or written out: the step is done for each `item`.")
    .optional(),
  concurrency: z.int().min(1).max(10_000).describe("Items of foreach at work at a time.").optional(),
  ...shared,
};
const program = {
  command: z
    .tuple([filled("The program.")], text("An argument, as data."))
    .describe("The program and its arguments.")
    .optional(),
  shell: filled("A line for /bin/sh -c. Values come in as environment variables.").optional(),
};
const { idleTimeout: _, retry: __, ...unhurried } = step;

/** Each type of step with what it can say. */
const types = {
  command: z.strictObject({ type: z.literal("command"), ...step, ...program, ...around }),
  agent: z.strictObject({
    type: z.literal("agent"),
    ...step,
    ...ofAgents,
    command: program.command.describe("Of a custom agent: its program and the arguments."),
    prompt: filled("What the agent is asked.").optional(),
    promptFile: filled("A file with the prompt, from the file's folder on.").optional(),
    reason: filled("Why the agent may do everything; permission full needs one.").optional(),
    allowRoot: z.boolean().describe("Lets an agent that may do everything run as root.").optional(),
    untested: z.boolean().describe("Takes a version of the agent that was not tried.").optional(),
    ...around,
  }),
  gate: z.strictObject({
    type: z.literal("gate"),
    ...step,
    ...program,
    blockedExitCodes: z
      .array(z.int().min(1).max(255))
      .min(1)
      .describe("Exit statuses that block: the step and what needs it are skipped, and the run succeeds.")
      .optional(),
    ...around,
  }),
  check: z.strictObject({ type: z.literal("check"), ...step, ...program, ...around }),
  approval: z.strictObject({
    type: z.literal("approval"),
    ...unhurried,
    question: filled("What the person is asked.").optional(),
    default: z.enum(["approve", "reject"]).describe("The answer when nobody has answered in time.").optional(),
  }),
  wait: z.strictObject({
    type: z.literal("wait"),
    ...unhurried,
    for: duration("How long.").optional(),
    until: filled("An instant, as in 2027-03-28T02:30:00Z.").optional(),
    event: filled("The type of an event of drover's own, as in run.succeeded.").optional(),
  }),
  handoff: z.strictObject({
    type: z.literal("handoff"),
    ...step,
    title: filled("Of the pull request.").optional(),
    body: text("Of the pull request.").optional(),
    base: filled("The branch that it is to be merged into.").optional(),
    draft: z.boolean().describe("Opens it as a draft.").optional(),
  }),
  workflow: z.strictObject({
    type: z.literal("workflow"),
    ...step,
    workflow: filled("The name of a workflow, or its file from this one's folder on.").optional(),
    with: z.record(z.string(), z.unknown()).describe("Its inputs.").optional(),
  }),
  notify: z.strictObject({
    type: z.literal("notify"),
    ...step,
    ...program,
    webhook: filled("An address that the message is sent to, by POST.").optional(),
    message: text("What is said.").optional(),
    ...around,
  }),
};

export const stepTypes = Object.keys(types) as readonly (keyof typeof types)[];
export type StepType = keyof typeof types;

const forms = Object.values(types);
export const definitionForm = z.strictObject({
  name: loopName.describe("What the workflow is called."),
  description: text("What it is for.").optional(),
  inputs: z
    .record(
      z.string().regex(NAME, "an input is named with up to 64 letters, digits and _, a letter first"),
      z.unknown(),
    )
    .describe("What a run is given: each a JSON Schema, with the default that is taken where nothing is given.")
    .optional(),
  env: z
    .record(environmentName, text("A value, as data."))
    .describe("Environment variables of every step that starts a process.")
    .optional(),
  defaults: z
    .strictObject({ ...shared, ...ofAgents, cwd: around.cwd, envPass: around.envPass })
    .describe("What holds for each step that does not say otherwise.")
    .optional(),
  steps: z
    .array(z.discriminatedUnion("type", forms as [(typeof forms)[number], ...(typeof forms)[number][]]))
    .min(1, "there must be at least one step")
    .describe("In any order: what a step needs says when it can start."),
});

export type Definition = z.infer<typeof definitionForm>;
export type StepForm = Definition["steps"][number];

const DEFAULT_KEYS = Object.keys(definitionForm.shape.defaults.unwrap().shape);
/** Keys that may stand in an object of the form, by its place; null where others say that. */
export function keysAt(path: readonly PropertyKey[], type: unknown): readonly string[] | null {
  const [first, index, within, ...more] = path;
  if (first === undefined) return Object.keys(definitionForm.shape);
  if (first === "defaults" && index === undefined) return DEFAULT_KEYS;
  if (first === "defaults" && index === "retry") return Object.keys(retry.shape);
  if (first !== "steps" || more.length > 0) return null;
  if (within === "retry") return Object.keys(retry.shape);
  return within === undefined && typeof type === "string" && Object.hasOwn(types, type)
    ? Object.keys(types[type as StepType].shape)
    : null;
}

/** Every word that some step can say. */
export const stepKeys: readonly string[] = [...new Set(forms.flatMap(({ shape }) => Object.keys(shape)))];
/** Types of steps that can say a word. */
export const typesWith = (key: string): readonly StepType[] =>
  stepTypes.filter((type) => Object.hasOwn(types[type].shape, key));

/** JSON Schema of a file, for editors; what it cannot say `workflow validate` says. */
export function workflowSchema(): object {
  const { $schema, ...schema } = z.toJSONSchema(definitionForm, { io: "input", target: "draft-2020-12" });
  return { $schema, $id: "urn:drover:schema:workflow.yaml:1", title: "A workflow", ...schema };
}
