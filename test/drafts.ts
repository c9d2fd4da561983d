/** What tests hand to a store, whole: a test names only what it is about. */
import { defaultLimits } from "../src/core/limits.ts";
import { runPolicy } from "../src/core/loop.ts";
import type { RunDraft } from "../src/core/ports.ts";
import { type Outcome, traceless } from "../src/core/run.ts";
import { type CommandTarget, commandTarget, type Target } from "../src/core/target.ts";

const plain = commandTarget.parse({ kind: "command", argv: ["true"], cwd: "/" });

/** A command in `/` with nothing of its own. */
export const commandOf = (argv: Readonly<CommandTarget["argv"]>, over: Partial<CommandTarget> = {}): CommandTarget => ({
  ...plain,
  argv: [...argv],
  ...over,
});

/** A run that a person adds, on any host. */
export const runDraft = (target: Target, over: Partial<RunDraft> = {}): RunDraft => ({
  kind: target.kind,
  target,
  policy: runPolicy.parse({}),
  originKind: "person",
  originId: null,
  idempotencyKey: null,
  parentRunId: null,
  hostPin: null,
  limits: defaultLimits,
  ...over,
});

/** A success that left nothing behind it. */
export const outcomeOf = (over: Partial<Outcome> = {}): Outcome => ({
  ...traceless,
  kind: "succeeded",
  class: null,
  endedBy: "self",
  exitStatus: 0,
  message: null,
  ...over,
});
