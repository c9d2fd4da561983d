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
  ...surroundings,
});

/** What to run. Agents and workflows join this union with their issues. */
export const target = z.discriminatedUnion("kind", [commandTarget]);

export type CommandTarget = z.infer<typeof commandTarget>;
export type Target = z.infer<typeof target>;

/** The command in one line, for people; never for a shell. */
export function describeTarget(of: Target): string {
  if (of.shell && of.argv[0] === "/bin/sh" && of.argv.length === 3) return of.argv[2] ?? "";
  return of.argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(" ");
}
