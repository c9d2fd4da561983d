/** A workflow as a picture: lines for a terminal, and Mermaid for a page. */
import type { Workflow } from "./check-definition.ts";

/** What a picture says of a step. */
export interface DrawnStep {
  readonly id: string;
  readonly type: string;
  readonly needs: readonly string[];
  /** Its condition as it is written; null without one. */
  readonly if: string | null;
  /** It is done for each item of a list. */
  readonly foreach: boolean;
  /** Steps that have to end one after another before it can start. */
  readonly depth: number;
}

/** Steps in an order in which each comes after those that it needs. */
export function drawnSteps({ definition, order }: Workflow): readonly DrawnStep[] {
  const depths = new Map<string, number>();
  return order.flatMap((index) => {
    const step = definition.steps[index];
    if (step === undefined) return [];
    const needs = step.needs ?? [];
    const depth = needs.reduce((most, need) => Math.max(most, (depths.get(need) ?? 0) + 1), 0);
    depths.set(step.id, depth);
    const condition = step.if === undefined ? null : String(step.if).trim();
    return [{ id: step.id, type: step.type, needs, if: condition, foreach: step.foreach !== undefined, depth }];
  });
}

/** One line for each step, deeper where it starts later. */
export function drawText(steps: readonly DrawnStep[]): string {
  return steps
    .map(({ id, type, needs, if: condition, foreach, depth }) => {
      const after = needs.length === 0 ? "" : `  after ${needs.join(", ")}`;
      const each = foreach ? ", for each item" : "";
      return `${"  ".repeat(Math.min(depth, DEEPEST))}${id}  ${type}${each}${after}${condition === null ? "" : `  if ${condition}`}\n`;
    })
    .join("");
}
/** Steps that a line is moved to the right for; a chain of thousands would leave the terminal. */
const DEEPEST = 20;

/** Characters that mean something to Mermaid or to the page, as it writes them. */
const escaped = (text: string): string =>
  text.replaceAll(/[^\p{L}\p{N} _.,=()!+*/-]/gu, (letter) => `#${letter.codePointAt(0) ?? 0};`);

/** The steps as a flowchart of Mermaid; a step with a condition hangs on dotted lines. */
export function drawMermaid(steps: readonly DrawnStep[]): string {
  const names = new Map(steps.map(({ id }, index) => [id, `s${index}`]));
  const lines = steps.flatMap(({ id, type, needs, if: condition, foreach }) => {
    const about = [
      id,
      `${type}${foreach ? ", for each item" : ""}`,
      ...(condition === null ? [] : [`if ${condition}`]),
    ];
    return [
      `  ${names.get(id)}["${about.map(escaped).join("<br/>")}"]`,
      ...needs.map((need) => `  ${names.get(need)} ${condition === null ? "-->" : "-.->"} ${names.get(id)}`),
    ];
  });
  return ["flowchart TD", ...lines, ""].join("\n");
}
