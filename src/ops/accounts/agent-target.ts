/** What loops and runs of agents have of their own: the inputs that say which agent, with which prompt, and what it may do. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { AppError } from "../../core/errors.ts";
import { describeSize } from "../../core/size.ts";
import type { AgentTarget, Permission, PromptRef, Provider, WorktreeMode } from "../../core/target.ts";
import { holdsSecret } from "../../core/variable-names.ts";
import { findAccountOf } from "./account-find.ts";
import type { Warning } from "../documents.ts";
import { badInput, type Bytes, bytes, choice, fileBytes, flag, type InputOf, text } from "../fields.ts";
import { isFile } from "../look.ts";
import type { StoreContext } from "../operation.ts";

// Written out, as core's lists lie beside its schemas, which a command that only parses words does not load.
export const PROVIDERS = ["claude", "codex", "custom"] as const satisfies readonly Provider[];
export const PERMISSIONS = ["read-only", "workspace-write", "full"] as const satisfies readonly Permission[];
export const WORKTREE_MODES = ["off", "auto", "required"] as const satisfies readonly WorktreeMode[];

/** Characters of a prompt's first line that people are shown. */
const HEAD_CHARACTERS = 120;
/** Where the first line is looked for. */
export const HEAD_BYTES = 64 * 1024;

export const agentFields = {
  agent: choice("an agent to run", PROVIDERS, { placeholder: "PROVIDER", declared: "provider" }),
  prompt: bytes("the agent's prompt; - reads it from standard input"),
  promptFile: fileBytes("a file with the agent's prompt, read now"),
  model: text("the agent's model", { placeholder: "M", fallback: "the agent's own" }),
  permission: choice("what the agent may do", PERMISSIONS, { fallback: "workspace-write" }),
  reason: text("why it may do everything; full needs one", { free: true }),
  allowRoot: flag("lets an agent that may do everything run as root"),
  untested: flag("takes a version of the agent that was not tried"),
  agentCommand: text("the program of a custom agent; its arguments go after --", {
    placeholder: "FILE",
    declared: "command",
    completes: "file",
  }),
  account: text("the account to work under: NAME or PROVIDER:NAME", {
    placeholder: "ACCOUNT",
    fallback: "default, your own login",
    completes: "account",
  }),
} as const;

export type AgentInput = InputOf<typeof agentFields>;

/** Inputs that only an agent has, in the order in which they are named in errors. */
const AGENT_FLAGS: readonly (readonly [keyof AgentInput, string])[] = [
  ["prompt", "--prompt"],
  ["promptFile", "--prompt-file"],
  ["agentCommand", "--agent-command"],
  ["model", "--model"],
  ["permission", "--permission"],
  ["reason", "--reason"],
  ["allowRoot", "--allow-root"],
  ["untested", "--untested"],
  ["account", "--account"],
];

/** The first flag of an agent that is given; null when none is. */
export const agentFlagIn = (input: AgentInput): string | null =>
  AGENT_FLAGS.find(([key]) => input[key] !== undefined && input[key] !== false)?.[1] ?? null;

/** What of an agent's target is not its surroundings: a candidate for core's schema, which checks it. */
export type AgentCandidate = Omit<
  AgentTarget,
  "cwd" | "env" | "envPass" | "secrets" | "expect" | "output" | "worktree"
>;

/**
 * What the input says of an agent, over one that is there (an edit): what is not given stays. Its prompt is not stored yet.
 * Errors: AppError invalid with the flag.
 */
export function agentCandidate(
  context: Pick<StoreContext, "settings" | "isRoot">,
  input: AgentInput & { readonly command?: readonly string[] | undefined },
  before: AgentTarget | null,
): { readonly candidate: Omit<AgentCandidate, "prompt">; readonly prompt: PromptBytes | null } {
  const provider = input.agent ?? before?.provider;
  if (provider === undefined) throw new Error("an agent has a provider");
  const same = before?.provider === provider ? before : null;
  const permission = input.permission ?? before?.permission ?? "workspace-write";
  const isFull = permission === "full";
  const reason = isFull ? (input.reason ?? before?.reason ?? null) : null;
  if (input.reason !== undefined && !isFull)
    throw badInput(
      "--reason",
      `--reason says why an agent may do everything; this one may only ${permission}`,
      "Leave it out, or give --permission full.",
    );
  if (isFull && (reason === null || reason.trim() === ""))
    throw badInput(
      "--reason",
      "an agent that may do everything needs a reason",
      'Write it as in --permission full --reason "runs in a container of its own".',
      "reason_missing",
    );
  if (input.allowRoot && !isFull)
    throw badInput(
      "--allow-root",
      `--allow-root is for an agent that may do everything; this one may only ${permission}`,
      "Leave it out, or give --permission full.",
    );
  const allowRoot = isFull && (input.allowRoot || before?.allowRoot === true);
  if (isFull && context.isRoot && !allowRoot)
    throw badInput(
      "--allow-root",
      "drover runs as root here, so this agent could do everything to this machine",
      "Give --allow-root too if that is meant, or run drover as another user.",
      "root_not_allowed",
    );
  return {
    candidate: {
      kind: "agent",
      provider,
      command: customCommand(input, provider, same),
      model: input.model ?? same?.model ?? null,
      permission,
      reason,
      allowRoot,
      untested: input.untested || same?.untested === true,
      account: input.account === undefined ? (same?.account ?? "default") : accountNameOf(input.account, provider),
    },
    prompt: promptOf(context, input, before),
  };
}

function customCommand(
  input: AgentInput & { readonly command?: readonly string[] | undefined },
  provider: Provider,
  before: AgentTarget | null,
): AgentTarget["command"] {
  const rest = input.command ?? [];
  if (provider !== "custom") {
    if (input.agentCommand !== undefined)
      throw badInput(
        "--agent-command",
        `${provider} has its own program`,
        "Give --agent custom for a program of yours.",
      );
    if (rest.length > 0)
      throw badInput(
        "command",
        "--agent and -- COMMAND contradict each other",
        "Give one of them; the arguments of a custom agent go after --, with --agent-command.",
        "contradiction",
      );
    return null;
  }
  if (input.agentCommand !== undefined) return [input.agentCommand, ...rest];
  if (before?.command != null && rest.length === 0) return before.command;
  throw badInput(
    "--agent-command",
    "a custom agent needs its program",
    "Write it as in --agent custom --agent-command ./agent.sh --prompt TEXT -- ARGUMENTS.",
    "missing_value",
  );
}

/** `claude:work` or `work`, as the name alone. Errors: AppError invalid. */
function accountNameOf(given: string, provider: Provider): string {
  const at = given.indexOf(":");
  if (at === -1) return given;
  if (given.slice(0, at) !== provider)
    throw badInput(
      "--account",
      `the account ${JSON.stringify(given)} is none of ${provider}`,
      `Give the name of an account of ${provider}: \`drover account ls\` lists them.`,
    );
  return given.slice(at + 1);
}

/** A prompt that was given, and what a target keeps of it. */
export interface PromptBytes {
  readonly ref: PromptRef;
  /** base64 */
  readonly content: string;
}

/** null: none is given, the one before stays. Errors: AppError invalid `missing_prompt`, `nul_byte`, `prompt_blank`, `prompt_too_large`. */
function promptOf(
  context: Pick<StoreContext, "settings">,
  input: AgentInput,
  before: AgentTarget | null,
): PromptBytes | null {
  if (input.prompt !== undefined && input.promptFile !== undefined)
    throw badInput(
      "--prompt-file",
      "--prompt and --prompt-file contradict each other",
      "Give one of them.",
      "contradiction",
    );
  const path = input.promptFile === undefined ? "--prompt" : "--prompt-file";
  const given: Bytes | undefined = input.prompt ?? input.promptFile;
  if (given === undefined) {
    if (before !== null) return null;
    throw badInput(
      "--prompt",
      "the agent has no prompt",
      "Give --prompt TEXT, --prompt-file FILE, or --prompt - for standard input.",
      "missing_prompt",
    );
  }
  const content = Buffer.from(given.base64, "base64");
  if (content.includes(0))
    throw badInput(path, "the prompt holds a NUL byte", "Remove it: no agent takes it as text.", "nul_byte");
  const { promptBytes } = context.settings.limits;
  if (content.length > promptBytes)
    throw badInput(
      path,
      `the prompt has ${content.length} bytes, more than ${promptBytes} (${describeSize(promptBytes)})`,
      "Put what is long into a file and name it in the prompt, or raise limits.promptBytes.",
      "prompt_too_large",
    );
  const shown = content.subarray(0, HEAD_BYTES).toString();
  if (content.length <= HEAD_BYTES && shown.trim() === "")
    throw badInput(path, "the prompt is blank", "Say what the agent is to do.", "prompt_blank");
  return {
    ref: { digest: createHash("sha256").update(content).digest("hex"), bytes: content.length, head: headOf(shown) },
    content: given.base64,
  };
}

/** The first line that is not blank, cut (then `…` is its end), without control characters. */
export function headOf(prompt: string): string {
  const line = (/\S[^\n\r]*/.exec(prompt)?.[0] ?? "").replaceAll(/\p{Cc}+/gu, " ").trim();
  const characters = Array.from(line.slice(0, 2 * HEAD_CHARACTERS + 2));
  return characters.length <= HEAD_CHARACTERS ? line : `${characters.slice(0, HEAD_CHARACTERS - 1).join("")}…`;
}

/**
 * Refuses an agent's key among the variables that are stored and shown. An empty value is none.
 * Errors: AppError invalid `secret_in_env`.
 */
export async function refuseKeys(
  { agents }: Pick<StoreContext, "agents">,
  env: Readonly<Record<string, string>> | undefined,
): Promise<void> {
  const names = Object.entries(env ?? {}).flatMap(([name, value]) => (value === "" ? [] : [name]));
  if (names.length === 0) return;
  const facts = await Promise.all(PROVIDERS.map((provider) => agents.about(provider)));
  const key = names.find((name) => facts.some(({ secretKeys }) => secretKeys.includes(name)));
  if (key === undefined) return;
  throw badInput(
    `--env ${key}`,
    `${key} is a secret, and --env is stored and shown`,
    `Say where it comes from, as in --secret ${key}=file:~/.config/${key.toLowerCase()} or ${key}=env:${key}; it is looked up at each start.`,
    "secret_in_env",
  );
}

/** Values that are stored and shown although their names say that they are secrets. */
export const namedSecrets = (env: Readonly<Record<string, string>> | undefined): readonly Warning[] =>
  Object.entries(env ?? {})
    .filter(([name, value]) => holdsSecret(name, value))
    .map(([name]) => ({
      code: "secret_in_env",
      message: `the value of ${name} is stored, since it is given by --env`,
      hint: `if it is a secret, say where it comes from: --secret ${name}=file:PATH, env:NAME or cmd:STRING`,
    }));

/** Refuses an agent that this host cannot start now. Errors: AppError invalid `agent_refused`, `agent_untested`, not_found `agent_not_found`, `account_not_found`. */
export async function requireAgent(context: StoreContext, target: AgentTarget): Promise<void> {
  const { program, install, permissions, tested } = await context.agents.about(target.provider);
  if (!permissions.includes(target.permission))
    throw badInput(
      "--permission",
      `nothing holds ${target.provider === "custom" ? "a custom agent" : target.provider} to ${target.permission}`,
      `Choose one of ${permissions.join(", ")}; --worktree required keeps it in a tree of its own.`,
      "agent_refused",
    );
  const name = target.command?.[0] ?? program ?? target.provider;
  const file = await context.findProgram(name, target.cwd, target.env["PATH"]);
  if (file === null)
    throw new AppError("not_found", "agent_not_found", `the agent's program ${JSON.stringify(name)} is not found`, {
      path: target.command === null ? "--agent" : "--agent-command",
      hint:
        target.command === null
          ? `${install ?? `Install the command line of ${target.provider}`}, so that ${name} is on PATH. \`drover agent ls\` shows what is found.`
          : "Check its spelling, give its full path, and make it executable with chmod +x.",
    });
  await findAccountOf(context.store, target.provider, target.account, "--account");
  if (target.untested || tested === null) return;
  // What says no version, or is another file than on our PATH, is left to the start, which asks again anyhow.
  const found = await context.agents.find(target.provider);
  if (found.file === file && found.tested === false)
    throw new AppError(
      "invalid",
      "agent_untested",
      `${target.provider} ${found.version} was not tried: tested from ${tested.min} to below ${tested.below}`,
      { path: "--agent", hint: "Install a version that was tried, or give --untested." },
    );
}

/** Whether a folder is in a repository, a bare one too: as git looks for one, without asking it. */
function isInRepository(folder: string): boolean {
  const isGitFolder = (path: string) =>
    isFile(join(path, "HEAD")) && existsSync(join(path, "objects")) && existsSync(join(path, "refs"));
  for (let at = folder; ; at = dirname(at)) {
    // A sandbox may leave an empty `.git`: only one with a HEAD, or a file that points to one, is a repository's.
    if (existsSync(join(at, ".git", "HEAD")) || isFile(join(at, ".git")) || isGitFolder(at)) return true;
    if (at === dirname(at)) return false;
  }
}

/** Whether a tree would have nothing of a folder in a repository. What git cannot say now, the start says. */
async function isUncommitted({ trees }: Pick<StoreContext, "trees">, cwd: string): Promise<boolean> {
  if (existsSync(join(cwd, ".git"))) return false;
  return trees.isUnknown(cwd).catch(() => false);
}

/**
 * Where the work is done, for a folder as it is now: `auto` in no repository, or where a tree would have nothing of the
 * folder, is `off`, and said. Errors: AppError invalid `no_repository`, `not_committed`.
 */
export async function settleWorktree(
  context: Pick<StoreContext, "trees">,
  mode: WorktreeMode,
  cwd: string,
  writes: boolean,
): Promise<{ readonly mode: WorktreeMode; readonly warnings: readonly Warning[] }> {
  const inside = mode === "off" || isInRepository(cwd);
  if (mode === "off" || (inside && !(await isUncommitted(context, cwd)))) return { mode, warnings: [] };
  if (mode === "required")
    throw inside
      ? badInput(
          "--worktree",
          `nothing in ${JSON.stringify(cwd)} is committed, so a worktree would not have it`,
          "Commit what the work needs, name another folder with --cwd, or give --worktree off.",
          "not_committed",
        )
      : badInput(
          "--worktree",
          `${JSON.stringify(cwd)} is in no git repository`,
          "Name a folder of one with --cwd, make one with `git init`, or give --worktree off.",
          "no_repository",
        );
  return {
    mode: "off",
    warnings: [
      {
        code: "no_worktree",
        message: `${inside ? `nothing in ${cwd} is committed` : `${cwd} is in no git repository`}: the work is done in the folder itself${inside ? ", in your checkout" : ""}`,
        hint: writes
          ? "agents that share it run one after another; --worktree required insists on a tree of its own"
          : "--worktree required insists on a tree of its own",
      },
    ],
  };
}
