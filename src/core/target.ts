import { z } from "zod";
import { shellNames } from "./variable-names.ts";

const noNul = (what: string) => (text: string) => !text.includes("\0") || `${what} must not contain NUL`;
const text = (what: string) =>
  z.string().refine((t) => noNul(what)(t) === true, { error: `${what} must not contain a NUL byte` });

export const environmentName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "an environment variable is named with letters, digits and underscores")
  .refine((name) => !shellNames.test(name), { error: "this name is kept by the shell and cannot be set" })
  .refine((name) => !name.startsWith("DROVER_"), { error: "names that begin with DROVER_ are set by drover" });

/** Where a secret comes from at each start: `env:NAME`, `file:PATH` or `cmd:STRING`. The value itself is never stored. */
export const secretSource = text("a secret's source").regex(
  /^(env|file|cmd):.+/s,
  "a secret comes from env:NAME, file:PATH or cmd:STRING",
);

/** What must be seen for success: `output`, `changes`, `commit`, `file:PATH`, `cmd:STRING`. */
export const expectation = text("an expectation").regex(
  /^(output|changes|commit|file:.+|cmd:.+)$/s,
  "expect output, changes, commit, file:PATH or cmd:STRING",
);

/** Whether a run works in a worktree of its own: `auto` where the folder is in a repository, `required` or it fails. */
export const worktreeModes = ["off", "auto", "required"] as const;
export type WorktreeMode = (typeof worktreeModes)[number];

const surroundings = {
  cwd: text("the working directory").min(1, "the working directory is empty"),
  env: z.record(environmentName, text("an environment value")).default({}),
  envPass: z.array(environmentName).default([]),
  secrets: z.record(environmentName, secretSource).default({}),
  expect: z.array(expectation).max(32, "there are at most 32 expectations").default([]),
  /** `files`: the kernel appends to files. `pipe`: through a `cat`, for programs that reopen and empty their outputs. */
  output: z.enum(["files", "pipe"]).default("files"),
};

export const commandTarget = z.strictObject({
  kind: z.literal("command"),
  /** The command and its arguments; a shell string is `["/bin/sh", "-c", STRING]` with `shell` true. */
  argv: z.tuple([text("the command").min(1, "the command is empty")], text("an argument")),
  /** Said so that people are shown the string that they wrote. */
  shell: z.boolean().default(false),
  /** Absent is off. */
  worktree: z.enum(worktreeModes).optional(),
  ...surroundings,
});

/** Agent command lines that have an adapter; `custom` is any other that reads a prompt and prints its result. */
export const providers = ["claude", "codex", "custom"] as const;
export type Provider = (typeof providers)[number];

export const permissions = ["read-only", "workspace-write", "full"] as const;
export type Permission = (typeof permissions)[number];

/** A prompt is kept once in the store, by its digest; a target only names it. */
export const promptRef = z.strictObject({
  /** SHA-256 of its bytes, in hex. */
  digest: z.string().regex(/^[0-9a-f]{64}$/, "a prompt is named by its digest"),
  bytes: z.int().min(1, "the prompt is empty"),
  /** Its first line, cut, for people. */
  head: z.string().max(200),
});
export type PromptRef = z.infer<typeof promptRef>;

/** A login's name within its provider; `default` is the user's own. */
export const accountName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,63}$/, "an account's name is up to 64 small letters, digits and . _ -");

export const agentTarget = z.strictObject({
  kind: z.literal("agent"),
  provider: z.enum(providers),
  /** Of `custom`: the program and its arguments; it reads the prompt on standard input and prints its result. */
  command: z
    .tuple([text("the agent's command").min(1, "the agent's command is empty")], text("an argument"))
    .nullable()
    .default(null),
  prompt: promptRef,
  model: text("the model").min(1, "the model is empty").nullable().default(null),
  permission: z.enum(permissions).default("workspace-write"),
  /** Why `full` is asked for. */
  reason: text("the reason").nullable().default(null),
  allowRoot: z.boolean().default(false),
  /** Takes a version of the command line that was not tried. */
  untested: z.boolean().default(false),
  account: accountName.default("default"),
  worktree: z.enum(worktreeModes).default("auto"),
  ...surroundings,
});

/** A workflow as one run or loop has it: the text of its definition is kept once in the store, by its digest. */
export const workflowTarget = z.strictObject({
  kind: z.literal("workflow"),
  name: z.string().min(1).max(100),
  /** What it was read from: paths in it go from there. */
  file: text("the workflow's file").min(1),
  definition: promptRef,
  /** Each of its inputs, with the defaults of those that were not given. */
  inputs: z.record(z.string(), z.unknown()).default({}),
  /** For steps that say nothing of it; absent: as is usual for what they do. */
  worktree: z.enum(worktreeModes).optional(),
  /** Where it works; what the processes of all its steps are given besides. */
  ...surroundings,
});

/** What to run. */
export const target = z.discriminatedUnion("kind", [commandTarget, agentTarget, workflowTarget]);

export type CommandTarget = z.infer<typeof commandTarget>;
export type AgentTarget = z.infer<typeof agentTarget>;
export type WorkflowTarget = z.infer<typeof workflowTarget>;
export type Target = z.infer<typeof target>;
/** What a process is started for. */
export type ProcessTarget = CommandTarget | AgentTarget;
