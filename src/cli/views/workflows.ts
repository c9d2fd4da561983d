/** Workflows for people. */
import type { Problem } from "../../core/errors.ts";
import { inertLine, inertText, problemLine } from "../text.ts";
import { plural } from "./words.ts";

/** Of `workflow validate`. */
export function validated(answer: {
  readonly file: string;
  readonly ok: boolean;
  readonly name: string | null;
  readonly steps: number;
  readonly count: number;
  readonly problems: readonly Problem[];
}): string {
  const { file, ok, name, steps, count, problems } = answer;
  if (ok) return `${inertLine(file)} is fine: ${inertLine(name ?? "")}, ${plural(steps, "step")}\n`;
  const lines = problems.map((problem) => `${inertLine(problemLine(problem, null))}\n`);
  const more = count > problems.length ? `, the first ${problems.length} are shown` : "";
  return `${lines.join("")}${plural(count, "problem")}${more}\n`;
}

/** Of `workflow graph`. */
export const graph = (answer: { readonly graph: string }): string => inertText(answer.graph);
