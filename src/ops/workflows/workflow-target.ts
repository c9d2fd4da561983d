/** A workflow as what a run or a loop runs: its file read and pinned, its inputs held against what it says of them. */
import { createHash } from "node:crypto";
import { AppError } from "../../core/errors.ts";
import { type JsonSchema, isObject, misfits, typesOf } from "../../core/json-schema.ts";
import type { Limits } from "../../core/limits.ts";
import type { Target, WorkflowTarget } from "../../core/target.ts";
import { besideFile, notRunnable } from "../../core/workflow/decide.ts";
import type { Definition } from "../../core/workflow/definition.ts";
import { loadExpressions } from "../../core/workflow/expression.ts";
import { filesNamed, pinnedText, readPinned } from "../../core/workflow/pinned.ts";
import { skeletonOf } from "../../core/workflow/skeleton.ts";
import type { PromptBytes } from "../accounts/agent-target.ts";
import { readSource } from "../declared/declared-files.ts";
import { badInput } from "../fields.ts";
import type { StoreContext } from "../operation.ts";
import { readWorkflow } from "./workflow-file.ts";

/**
 * Reads the file and everything that its steps name, as they are now: what becomes of them later changes later runs.
 * Errors: those of reading it; AppError invalid with its problems, `not_available`, `bad_value`, `missing_value`.
 * @param given inputs by their names, as they are typed
 */
export async function pinWorkflow(
  file: string,
  given: Readonly<Record<string, string>>,
  limits: Limits,
): Promise<{ readonly target: Pick<WorkflowTarget, "name" | "definition" | "inputs">; readonly prompt: PromptBytes }> {
  const { workflow, text, value } = await readWorkflow(file, limits);
  const refused = notRunnable(workflow);
  if (refused !== null)
    throw badInput(
      refused.path,
      refused.message,
      "`drover workflow validate` still checks it; leave the step out to run the rest.",
      "not_available",
    );
  const { definition } = workflow;
  const files: Record<string, string> = {};
  for (const name of filesNamed(workflow)) files[name] = readText(besideFile(file, name), name, limits);
  const content = Buffer.from(pinnedText({ text, value, files }));
  if (content.length > limits.promptBytes)
    throw badInput(
      "workflow",
      `the workflow and the files that it names hold ${content.length} bytes, more than ${limits.promptBytes}`,
      "Let its steps read what is long where they run, or raise limits.promptBytes.",
      "too_large",
    );
  const digest = createHash("sha256").update(content).digest("hex");
  const ref = { digest, bytes: content.length, head: definition.name };
  return {
    target: { name: definition.name, definition: ref, inputs: inputsOf(definition, given) },
    prompt: { ref, content: content.toString("base64") },
  };
}

function readText(path: string, name: string, limits: Limits): string {
  const bytes = readSource(path, limits.promptBytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw badInput(name, `the file ${JSON.stringify(name)} is not UTF-8 text`, "Save it as UTF-8.", "not_utf8");
  }
}

/** Inputs with their types: a text where the workflow takes texts, else JSON where it is that. */
function inputsOf({ inputs = {} }: Definition, given: Readonly<Record<string, string>>): Record<string, unknown> {
  const names = Object.keys(inputs);
  for (const name of Object.keys(given))
    if (!Object.hasOwn(inputs, name))
      throw badInput(
        `--input ${name}`,
        `the workflow has no input ${JSON.stringify(name)}`,
        names.length === 0 ? "It takes none." : `It takes ${names.join(", ")}.`,
        "unknown_input",
      );
  const values: Record<string, unknown> = {};
  for (const [name, raw] of Object.entries(inputs)) {
    const schema = raw as JsonSchema;
    const text = given[name];
    if (text === undefined) {
      if (isObject(schema) && Object.hasOwn(schema, "default")) values[name] = schema["default"];
      else
        throw badInput(
          `--input ${name}`,
          `the input ${name} is missing`,
          `Give it: --input ${name}=VALUE.`,
          "missing_value",
        );
      continue;
    }
    const value = typed(text, schema);
    const [misfit] = misfits(schema, value);
    if (misfit !== undefined)
      throw badInput(
        `--input ${name}`,
        `the input ${name}${misfit.at}: ${misfit.message}`,
        `The workflow says of it: ${JSON.stringify(schema).slice(0, 200)}.`,
        "bad_value",
      );
    values[name] = value;
  }
  return values;
}

function typed(text: string, schema: JsonSchema): unknown {
  const types = typesOf(schema);
  if (types?.every((type) => type === "string") === true) return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Keeps the steps of a workflow beside its text, which is kept as prompts are, before what names it is stored. */
export async function keepSteps(
  { store, settings }: Pick<StoreContext, "store" | "settings">,
  target: Target,
  content: string,
): Promise<void> {
  if (target.kind !== "workflow") return;
  await loadExpressions();
  const bytes = Buffer.from(content, "base64");
  if (createHash("sha256").update(bytes).digest("hex") !== target.definition.digest)
    throw new AppError("invalid", "bad_input", "the text of a workflow is not the one that its loop names");
  const { workflow } = readPinned(bytes.toString(), settings.limits);
  await store.definitions.put({ digest: target.definition.digest, steps: skeletonOf(workflow) });
}
