/** What would fail an agent at each of its starts, seen when it is asked for: its prompt, a commit, a program of the repository. */
import { isUtf8 } from "node:buffer";
import { isAbsolute } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { AgentTarget } from "../../core/target.ts";
import type { PromptBytes } from "./agent-target.ts";
import { badInput } from "../fields.ts";
import type { StoreContext } from "../operation.ts";

/** A later try is told what happened before it is told the task: so many characters at most. */
const NOTE_CHARACTERS = 4_096;

/**
 * Refuses what its provider would refuse every time. @param target with the worktree that is settled
 * @param prompt null: the one that is stored stays. Errors: AppError invalid `prompt_not_text`, `prompt_too_large`,
 * `agent_refused`, not_found `agent_not_found`.
 */
export async function checkAtDoor(
  context: StoreContext,
  target: AgentTarget,
  prompt: PromptBytes | null,
  promptFlag: string,
): Promise<void> {
  const { provider } = target;
  const { promptLimits, commitsInCheckout } = await context.agents.about(provider);
  if (promptLimits !== null) {
    const base64 =
      prompt?.content ?? (await context.store.prompts.get({ digest: target.prompt.digest }))?.content ?? "";
    const bytes = Buffer.from(base64, "base64");
    if (promptLimits.utf8 && !isUtf8(bytes))
      throw badInput(
        promptFlag,
        `the prompt is not UTF-8, and ${provider} takes nothing else`,
        "Convert it, as with `iconv -t UTF-8`.",
        "prompt_not_text",
      );
    const most = promptLimits.characters - NOTE_CHARACTERS;
    const { length } = bytes.toString();
    if (length > most)
      throw badInput(
        promptFlag,
        `the prompt has ${length} characters; ${provider} takes ${promptLimits.characters}, and ${NOTE_CHARACTERS} of them are for what a later try is told first`,
        "Put what is long into a file, and name that in the prompt.",
        "prompt_too_large",
      );
  }
  if (
    target.expect.includes("commit") &&
    target.worktree === "off" &&
    target.permission === "workspace-write" &&
    !commitsInCheckout
  )
    throw badInput(
      "--expect",
      `under workspace-write ${provider} cannot commit here: its sandbox lets commits be made only in a worktree of their own`,
      'Leave --worktree out in a git repository, or give --permission full --reason "...".',
      "agent_refused",
    );
  await requireCommitted(context, target);
}

/** A program of the repository is looked for in the tree: what is not committed is not in it. */
async function requireCommitted({ trees }: StoreContext, { command, cwd, worktree }: AgentTarget): Promise<void> {
  const program = command?.[0] ?? "";
  if (worktree === "off" || !program.includes("/") || isAbsolute(program) || !(await trees.lacks(cwd, program))) return;
  throw new AppError(
    "not_found",
    "agent_not_found",
    `the agent's program ${JSON.stringify(program)} is not committed, so it will not be in the worktree that it is started in`,
    {
      path: "--agent-command",
      hint: "Commit it, give its full path, or work in the folder itself with --worktree off.",
    },
  );
}
