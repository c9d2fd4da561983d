/** What files declare for people: what is made, changed and taken away, object by object and field by field. */
import type { ApplyAnswer, ApplyRound } from "../../ops/declared/apply-files.ts";
import type { FieldChange, PlanItem } from "../../ops/declared/declared-plan.ts";
import type { Json } from "../../ops/fields.ts";
import type { Screen } from "../screen.ts";
import { inertLine, problemLine } from "../text.ts";
import { plural, warnings } from "./words.ts";

const SIGNS: { readonly [action in PlanItem["action"]]: string } = {
  create: "+",
  change: "~",
  adopt: "=",
  unchanged: " ",
  delete: "-",
};

/** Longest value of a field that is shown whole. */
const VALUE_CHARACTERS = 100;

function value(of: Json): string {
  if (of === null) return "(none)";
  const text = typeof of === "string" ? of : JSON.stringify(of);
  const line = inertLine(text);
  return line.length > VALUE_CHARACTERS ? `${line.slice(0, VALUE_CHARACTERS - 1)}…` : line;
}

const fieldLine = ({ path, from, to }: FieldChange, screen: Screen): string =>
  `      ${screen.dim(inertLine(path === "" ? "limit" : path))}  ${value(from)} ${screen.dim("->")} ${value(to)}\n`;

function itemLines({ kind, name, action, changes }: PlanItem, screen: Screen): string {
  const paint = {
    create: screen.good,
    change: screen.warn,
    adopt: screen.warn,
    unchanged: screen.dim,
    delete: screen.bad,
  };
  const note =
    action === "delete" && kind === "loop"
      ? screen.dim("  archived; its runs stay")
      : action === "adopt"
        ? screen.dim("  as it is; this file declares it from now on")
        : "";
  const head = `${paint[action](`${SIGNS[action]} ${action.padEnd(6)}`)}  ${kind} ${screen.bold(inertLine(name))}${note}\n`;
  return head + changes.map((one) => fieldLine(one, screen)).join("");
}

/** Of `apply`. */
export function applied(answer: ApplyAnswer, screen: Screen): string {
  const { items, counts, dryRun, left } = answer;
  const shown = items.filter(({ action }) => action !== "unchanged");
  const parts = [
    [counts.create, dryRun ? "to create" : "created"],
    [counts.change, dryRun ? "to change" : "changed"],
    [counts.adopt, dryRun ? "to adopt" : "adopted"],
    [counts.delete, dryRun ? "to delete" : "deleted"],
    [counts.unchanged, "unchanged"],
  ] as const;
  const said = parts.filter(([count]) => count > 0).map(([count, what]) => `${count} ${what}`);
  const summary = said.length === 0 ? "nothing is declared" : said.join(", ");
  const rest =
    left === 0
      ? ""
      : `${plural(left, "object")} that ${left === 1 ? "was" : "were"} declared before ${left === 1 ? "is" : "are"} not any more, and ${left === 1 ? "stays" : "stay"}; --prune takes ${left === 1 ? "it" : "them"} away\n`;
  return (
    shown.map((item) => itemLines(item, screen)).join("") +
    `${summary}${dryRun && shown.length > 0 ? "; nothing was changed (--dry-run)" : ""}\n` +
    rest +
    warnings(answer.warnings, screen)
  );
}

/** Of one round of `apply --watch`. */
export function applyRound(round: ApplyRound, screen: Screen): string {
  if (!("error" in round)) return applied(round, screen);
  const { message, hint, problems = [] } = round.error;
  const lines = problems.map((problem) => `${inertLine(problemLine(problem, null))}\n`);
  return `${lines.join("")}${screen.bad(inertLine(message))}; what was applied last stays${hint === undefined ? "" : inertLine(`. ${hint}`)}\n`;
}
