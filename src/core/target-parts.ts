/** What a target holds, for whoever has one and makes none: without the schema library, so that a list stays quick. */
import { shellWord } from "./shell-word.ts";
import type { AgentTarget, Target, WorkflowTarget, WorktreeMode } from "./target.ts";

export const worktreeOf = (of: Target): WorktreeMode => of.worktree ?? "off";

/** The id of the account that an agent works under: `claude:work`. */
export const accountOf = (of: AgentTarget): string => `${of.provider}:${of.account}`;

/** The digest of the text that a target needs, a prompt or a definition; null where it needs none. */
export const promptOf = (of: Target): string | null =>
  of.kind === "agent" ? of.prompt.digest : of.kind === "workflow" ? of.definition.digest : null;

const shown = (words: readonly string[]): string => words.map(shellWord).join(" ");

/** Inputs of a workflow as they are typed: texts as they are, the rest as JSON. */
export const typedInputs = ({ inputs }: WorkflowTarget): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );

/** What runs, in one line, for people; never for a shell. A prompt's first line may hold a secret of its run, and is left out then. */
export function describeTarget(of: Target): string {
  if (of.kind === "workflow") return of.name;
  if (of.kind === "agent") {
    const who = of.command === null ? of.provider : shown(of.command);
    return `${who}${of.account === "default" ? "" : ` (${accountOf(of)})`}: ${Object.keys(of.secrets).length === 0 ? of.prompt.head : "a prompt"}`;
  }
  if (of.shell && of.argv[0] === "/bin/sh" && of.argv.length === 3) return of.argv[2] ?? "";
  return shown(of.argv);
}
