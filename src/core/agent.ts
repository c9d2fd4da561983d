/** What an agent says and how it ended, the same for every provider: what adapters read out of its events. */
import type { Instant } from "./ports.ts";
import type { FailureClass } from "./run.ts";
import type { Permission, Provider } from "./target.ts";

/** Tokens and money that an attempt used, as far as its provider says. */
export interface Usage {
  /** Input that was not read from a cache. */
  readonly inputTokens: number;
  readonly cachedInputTokens: number;
  readonly outputTokens: number;
  /** null where the provider names no price, or its beginning is not known. */
  readonly costUsd: number | null;
  /**
   * What it counts; absent: one attempt. `attempts`: earlier ones in the session that stated nothing may be in it, so sums
   * are true. `session`: everything that was used in the session.
   */
  readonly of?: "attempts" | "session";
  /** As a provider states it: the price counts the session although the tokens do not. Never on what is kept. */
  readonly costOf?: "session";
}

/** One line of the transcript: the same words for every provider. Texts are scrubbed and cut; `cutBytes` is what was left out. */
export type TranscriptEntry = { readonly at: Instant; readonly cutBytes?: number } & (
  | { readonly kind: "session"; readonly sessionId: string; readonly model: string | null }
  | { readonly kind: "text" | "thinking"; readonly text: string }
  | { readonly kind: "tool_call"; readonly id: string; readonly tool: string; readonly input: string }
  | { readonly kind: "tool_result"; readonly id: string; readonly ok: boolean; readonly text: string }
  | { readonly kind: "usage"; readonly usage: Usage }
  | { readonly kind: "limit"; readonly text: string; readonly resetAt: Instant | null }
  /** `final` false: the provider tries again by itself, or only warns. */
  | { readonly kind: "error"; readonly text: string; readonly final: boolean }
  | { readonly kind: "result"; readonly ok: boolean; readonly text: string }
  /** What is no event of the provider: plain lines, what we say about the stream itself. */
  | { readonly kind: "note"; readonly text: string }
);

/** What is known of a live agent from what it has printed so far. */
export interface AgentReading {
  readonly sessionId: string | null;
  /** Grows with each event that is work; notices of the provider's own retries are none. */
  readonly progress: number;
  /** The model has answered: the account works. */
  readonly answered: boolean;
  /** The closing event was seen; what is left is to exit. */
  readonly closed: boolean;
  /** The provider tries again by itself for this reason, since its last progress; null when it does not. */
  readonly trouble: { readonly class: FailureClass; readonly message: string } | null;
}

/** What the events of an ended agent add up to, its exit status included. */
export interface AgentVerdict {
  /** Only with positive proof: the provider's closing event. */
  readonly ok: boolean;
  /** null exactly when `ok`. */
  readonly class: FailureClass | null;
  /** One line for people, in the provider's words where it had some; null when `ok`. */
  readonly message: string | null;
  /** What it said at last; null when nothing. */
  readonly text: string | null;
  readonly sessionId: string | null;
  readonly usage: Usage | null;
  /** When the limit that ended it is over, by what the provider said; checked for sense. */
  readonly resetAt: Instant | null;
  /** Where `resetAt` comes from and the words: `event resetsAt 1796000226`, `retry-after 997`. */
  readonly resetSource: string | null;
  readonly httpStatus: number | null;
  /** Tools that were refused to it. */
  readonly refusedTools: readonly string[];
  /** The session that it was to go on with is not known to the provider; absent: it is, or there was none. */
  readonly sessionGone?: boolean;
  /** The session that it was to begin or to go on with belongs to somebody; absent: it does not, or there was none. */
  readonly sessionUsed?: boolean;
}

/**
 * How an attempt comes to its session: `begin` makes one, `resume` goes on with one, `fork` goes on in a copy of it, and
 * `afresh` makes one after others could not be used.
 */
export type SessionUse = "begin" | "resume" | "fork" | "afresh";

/** What an attempt's outcome keeps of its agent. `sessionGone`: no later attempt is to go on with its session. */
export type AgentOutcome = Pick<
  AgentVerdict,
  "sessionId" | "usage" | "resetAt" | "resetSource" | "httpStatus" | "refusedTools" | "sessionGone"
> & {
  /** The provider refused the session before anything was done, and what it had been asked for; absent: it did not. */
  readonly sessionRefused?: SessionUse;
  /** The session that its own began as a copy of: it counts on from there. */
  readonly copyOf?: string;
};

/** What is known of a provider's command line without a look at the machine. */
export interface AgentFacts {
  readonly provider: Provider;
  /** Name of the program on PATH; null where the target names it. */
  readonly program: string | null;
  /** How it gets onto a machine; null where nothing is to be said. */
  readonly install: string | null;
  /** Versions that were tried: from `min`, up to but without `below`; null: any. */
  readonly tested: { readonly min: string; readonly below: string } | null;
  /** The variable that names an account's home; null: its accounts differ by variables only. */
  readonly homeVariable: string | null;
  /** The provider's credentials and base addresses: none of them reaches another account. */
  readonly keys: readonly string[];
  /** Those of them whose values are secrets. */
  readonly secretKeys: readonly string[];
  /** Arguments of the provider's own login; null where there is none. */
  readonly loginArgs: readonly string[] | null;
  readonly permissions: readonly Permission[];
  /** What it takes as a prompt, in UTF-16 units; null: whatever there is. */
  readonly promptLimits: { readonly utf8: boolean; readonly characters: number } | null;
  /** Whether under `workspace-write` it can commit in a checkout that is no worktree of ours. */
  readonly commitsInCheckout: boolean;
  readonly capabilities: {
    readonly resume: boolean;
    readonly presetSession: boolean;
    readonly usage: boolean;
    readonly cost: boolean;
    readonly jsonEvents: boolean;
  };
}
