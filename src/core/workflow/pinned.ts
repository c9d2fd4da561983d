/** A definition as a run has it: pinned when the run or its loop was made, whatever becomes of the files. */
import { AppError } from "../errors.ts";
import { isObject } from "../json-schema.ts";
import { checkDefinition, type Workflow, type WorkflowBounds } from "./check-definition.ts";

export interface Pinned {
  /** The file as it was read, and what it says. */
  readonly text: string;
  readonly value: unknown;
  /** Texts of the files that its steps name, by how they name them. */
  readonly files: { readonly [name: string]: string };
}

/** The bytes that are kept, as text. */
export const pinnedText = ({ text, value, files }: Pinned): string => JSON.stringify({ text, value, files });

/** Reads what `pinnedText` wrote, after `loadExpressions`. AppError invalid `definition_unreadable`: another version of drover refuses it. */
export function readPinned(
  text: string,
  bounds: WorkflowBounds,
): { readonly workflow: Workflow; readonly files: Pinned["files"] } {
  const pinned: unknown = JSON.parse(text);
  const { value, files } = isObject(pinned) ? pinned : {};
  const { workflow, problems } = checkDefinition(value, bounds);
  if (workflow !== null) return { workflow, files: (files ?? {}) as Pinned["files"] };
  throw new AppError(
    "invalid",
    "definition_unreadable",
    `its definition is refused by this version: ${problems[0]?.message ?? "nobody knows why"}`,
    { hint: "Run the file again." },
  );
}

/** Files that steps of a workflow name, once each. */
export const filesNamed = ({ definition }: Workflow): readonly string[] => [
  ...new Set(definition.steps.flatMap((step) => (step.type === "agent" ? (step.promptFile ?? []) : []))),
];
