/** What an adapter is: data and pure functions about the command line of one provider. */
import type { AgentReading, AgentVerdict, TranscriptEntry } from "../../core/agent.ts";
import type { Limits } from "../../core/limits.ts";
import type { Instant } from "../../core/ports.ts";
import type { AgentTarget, Permission, Provider } from "../../core/target.ts";
import type { CommitAccess } from "../worktrees/commit-access.ts";

/** A command line of a provider, all that we know about it. Everything here is data or pure; nothing looks at the machine. */
export interface Adapter {
  readonly provider: Provider;
  /** Name of the program on PATH; null where the target names it. */
  readonly program: string | null;
  /** How it gets onto a machine, as the beginning of a sentence; left out where nothing is to be said. */
  readonly install?: string;
  /** Variables with the provider's credentials and base addresses: only its default account inherits them. */
  readonly keys: readonly string[];
  /** Those of `keys` whose values are secrets. */
  readonly secretKeys: readonly string[];
  /** The variable that names an account's home; null: its accounts differ by variables only. */
  readonly homeVariable: string | null;
  /** Variables that turn updates and telemetry off and keep the provider's own retries short. Below the target's own. */
  readonly off: Readonly<Record<string, string>>;
  /** Versions that were tried: from `min`, up to but without `below`; null: any. */
  readonly tested: { readonly min: string; readonly below: string } | null;
  /** Arguments that make it print its version, with `versionOf` to read that. */
  readonly versionArgs: readonly string[];
  /** Arguments of the provider's own login, started in an account's home; null where there is none. */
  readonly loginArgs: readonly string[] | null;
  /** How the provider itself says whether it is logged in; null where it cannot. */
  readonly probeLogin: LoginProbe | null;
  readonly capabilities: Capabilities;
  /** Whether a start on a home has to wait until the one before it has its session. */
  readonly serialStarts: boolean;
  /** Lines of standard error that say nothing about the work: in the raw log only; null: there are none. */
  readonly noise: RegExp | null;
  /** The command line of an attempt; the prompt goes on standard input. Errors: AppError `agent_refused`, `env_invalid`. */
  build(order: Order): CommandLine;
  /** A reader of one attempt's events. */
  start(surroundings: Surroundings): Reader;
}

export interface Capabilities {
  /** A later attempt can go on with a session by its id. */
  readonly resume: boolean;
  /** A later attempt can go on in a copy of a session, which stays as it is. */
  readonly fork: boolean;
  /** A session can be begun under an id of ours. */
  readonly presetSession: boolean;
  /** Permissions that it keeps by switches of its own. */
  readonly permissions: readonly Permission[];
  readonly promptBy: "stdin" | "argument";
  /** What it takes as a prompt, in UTF-16 units; null: whatever there is. */
  readonly promptLimits: { readonly utf8: boolean; readonly characters: number } | null;
  /** Under `workspace-write` it can commit in a checkout that is no tree of ours. */
  readonly commitsInCheckout: boolean;
  readonly usage: boolean;
  readonly cost: boolean;
  readonly jsonEvents: boolean;
  /** Several attempts may work in one home at a time. */
  readonly concurrentHomes: boolean;
}

export interface LoginProbe {
  readonly args: readonly string[];
  /** Reads its answer. @param environment what it was started with: some programs do not look at keys in variables here */
  read(answer: {
    readonly exit: number | null;
    readonly stdout: string;
    readonly stderr: string;
    readonly environment: Readonly<Record<string, string>>;
  }): LoginState;
}

/** `detail` is a few words for people and holds no secret. */
export interface LoginState {
  readonly loggedIn: boolean;
  readonly detail: string;
}

/** What a command line is built from. */
export interface Order {
  readonly target: AgentTarget;
  /** Where the program was found; the first word of the command line. Ignored by a provider whose target names it. */
  readonly program: string;
  /** A session to go on with, in a copy when `fork`, or an id to begin under; null: neither. */
  readonly session: { readonly id: string; readonly resume: boolean; readonly fork?: boolean } | null;
  /** The variables that it will have: some providers take by argument what people set by variable. */
  readonly environment: Readonly<Record<string, string>>;
  /** Whether the process will be root. */
  readonly isRoot: boolean;
  /** What a commit writes where it will work; absent or null: that is no tree of ours, or it may not write. */
  readonly commit?: CommitAccess | null;
}

export interface CommandLine {
  /** The program and its arguments. Holds no prompt and no secret. */
  readonly argv: readonly [string, ...string[]];
  /** Variables that this command line needs besides `off`; nothing overrides them. */
  readonly env: Readonly<Record<string, string>>;
}

/** What a reader needs to know to understand times. */
export interface Surroundings {
  /** The zone in which the process writes local times. */
  readonly zone: string;
  readonly limits: Pick<Limits, "quotaLongestMs" | "lineBytes">;
}

/** How an attempt ended, for its reader. */
export interface End {
  /** null: nobody knows, or a signal of ours ended it. */
  readonly exit: number | null;
  /** The last lines of standard error. */
  readonly stderrTail: string;
  readonly now: Instant;
}

/** One line of standard output. */
export interface Line {
  /** Without its end; of an overlong one what is left of it. */
  readonly text: string;
  /** What it says as JSON, when it is an object; else null. */
  readonly event: Readonly<Record<string, unknown>> | null;
}

/** Understands one attempt's lines, one after another. Does no I/O, never throws; equal lines give equal answers. */
export interface Reader {
  line(line: Line, at: Instant): readonly TranscriptEntry[];
  reading(): AgentReading;
  finish(end: End): AgentVerdict;
}

/** The version in what a command line printed: its first three numbers with dots; null when there is none. */
export function versionOf(printed: string): string | null {
  return /\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?/.exec(printed)?.[0] ?? null;
}

/** Whether a version is one that was tried. A version before a release (`2.1.0-beta`) counts as that release. */
export function isTested(adapter: Pick<Adapter, "tested">, version: string): boolean {
  if (adapter.tested === null) return true;
  return compare(version, adapter.tested.min) >= 0 && compare(version, adapter.tested.below) < 0;
}

const numbers = (version: string): readonly number[] =>
  (version.split("-")[0] ?? "").split(".").map((part) => Number.parseInt(part, 10) || 0);

function compare(a: string, b: string): number {
  const left = numbers(a);
  const right = numbers(b);
  for (let i = 0; i < 3; i++) {
    const difference = (left[i] ?? 0) - (right[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
