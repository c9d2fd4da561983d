/** A workflow as a file says it: read, checked, each problem with its line. */
import { AppError, type Problem } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import { checkDefinition, type Workflow } from "../../core/workflow/check-definition.ts";
import { loadExpressions } from "../../core/workflow/expression.ts";
import { readSource } from "../declared/declared-files.ts";
import { readDeclaredText } from "../declared/declared-text.ts";
import { isDeep } from "../fields.ts";

export { workflowSchema } from "../../core/workflow/definition.ts";
export { drawMermaid, drawnSteps, drawText } from "../../core/workflow/draw.ts";

/** Problems that are told; how many there are is said beside. */
const MOST_PROBLEMS = 100;

/** `workflow` is null where there are problems. */
export interface WorkflowFile {
  readonly workflow: Workflow | null;
  /** The first ones, in the order of the file. */
  readonly problems: readonly Problem[];
  /** How many there are. */
  readonly count: number;
}

/** The workflow of a file, with the text and the value that it was read from. Errors: those of `requireWorkflow`. */
export async function readWorkflow(
  file: string,
  limits: Limits,
): Promise<{ readonly workflow: Workflow; readonly text: string; readonly value: unknown }> {
  const bytes = readSource(file, limits.declaredBytes);
  const workflow = required(file, await readWorkflowText(bytes, file, limits));
  return { workflow, text: bytes.toString(), value: readDeclaredText(bytes, "name: NAME").value };
}

/** Reads a file, YAML or JSON. Errors: AppError not_found `file_not_found`, invalid `file_unreadable`, `too_large`; what it says are problems. */
export async function readWorkflowFile(file: string, limits: Limits): Promise<WorkflowFile> {
  return readWorkflowText(readSource(file, limits.declaredBytes), file, limits);
}

/** Reads the text of a workflow. @param file where it stands, as problems name it */
export async function readWorkflowText(bytes: Buffer, file: string, limits: Limits): Promise<WorkflowFile> {
  const text = readDeclaredText(bytes, "name: NAME");
  const found: Problem[] = text.problems.map((problem) => ({ ...problem, file }));
  let workflow: Workflow | null = null;
  if (isDeep(text.value))
    found.push({
      code: "too_deep",
      message: "it is nested deeper than any workflow",
      hint: "No part of one is.",
      file,
    });
  else if (text.value !== undefined) {
    await loadExpressions();
    const read = checkDefinition(text.value, limits);
    // A key that is there twice has one of its values.
    workflow = found.length > 0 ? null : read.workflow;
    const room = Math.max(0, MOST_PROBLEMS - found.length);
    const placed = read.problems
      .slice(0, room)
      .map((problem) => ({ ...problem, file, ...text.locate(problem.path ?? "") }));
    return {
      workflow,
      problems: [...found, ...placed].toSorted(
        (a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0),
      ),
      count: found.length + read.problems.length,
    };
  }
  return { workflow, problems: found, count: found.length };
}

/** The workflow of a file. Errors: those of reading it; AppError invalid with every problem, `bad_workflow` where there are several. */
export async function requireWorkflow(file: string, limits: Limits): Promise<Workflow> {
  return required(file, await readWorkflowFile(file, limits));
}

function required(file: string, { workflow, problems, count }: WorkflowFile): Workflow {
  if (workflow !== null) return workflow;
  throw new AppError(
    "invalid",
    count === 1 ? (problems[0]?.code ?? "bad_workflow") : "bad_workflow",
    `${count} problem${count === 1 ? "" : "s"} in ${file}`,
    { problems },
  );
}
