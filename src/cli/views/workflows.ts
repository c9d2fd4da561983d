/** Workflows for people. */
import type { Problem } from "../../core/errors.ts";
import type { Screen } from "../screen.ts";
import { inertLine, inertText, problemLine, table } from "../text.ts";
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

/** Of `template ls`. */
export const templates = (
  {
    items,
  }: {
    readonly items: readonly { name: string; builtIn: boolean; description: string | null; problem: string | null }[];
  },
  screen: Screen,
): string =>
  table(
    [{ title: "TEMPLATE", key: true }, { title: "FROM" }, { title: "WHAT IT IS FOR", elastic: true }],
    items.map(({ name, builtIn, description, problem }) => [
      name,
      builtIn ? "drover" : "you",
      problem === null ? (description ?? "") : { text: problem, paint: screen.bad },
    ]),
    screen,
  );

/** Of `template show`. */
export function template(
  answer: {
    readonly name: string;
    readonly file: string | null;
    readonly description: string;
    readonly variables: readonly { name: string; required: boolean; default: unknown; description: string | null }[];
    readonly text: string;
  },
  screen: Screen,
): string {
  const { name, file, description, variables, text } = answer;
  const head = `${inertLine(name)}: ${inertLine(description)}\n${file === null ? "" : `in ${inertLine(file)}\n`}`;
  const rows = variables.map((one) => [
    one.name,
    one.required ? "has to be given" : one.default === null ? "-" : JSON.stringify(one.default),
    one.description ?? "",
  ]);
  const columns = [{ title: "VARIABLE", key: true }, { title: "DEFAULT" }, { title: "IS", elastic: true }];
  return `${head}${rows.length === 0 ? "" : `\n${table(columns, rows, screen)}`}\n${inertText(text)}`;
}

/** Of `template render`. */
export const rendered = (answer: {
  readonly name: string;
  readonly steps: number;
  readonly file: string | null;
  readonly text: string;
}): string =>
  answer.file === null
    ? inertText(answer.text)
    : `${inertLine(answer.file)} is written: ${inertLine(answer.name)}, ${plural(answer.steps, "step")}\n`;
