/** Whether an agent's next attempt goes on with the session of the one before, and what it is told. */
import type { Assignment } from "../core/records.ts";
import type { FailureClass } from "../core/run.ts";

/**
 * Ends after which the session is worth going on with, in words for the agent: weather, our own limits, and checks that it
 * can still meet. After a full context, a refusal or nonsense the same session would meet the same wall.
 */
const RESUMED: { readonly [C in FailureClass]?: string } = {
  rate_limited: "the provider had too many requests, which is over",
  quota: "a usage limit was reached, which is over",
  overloaded: "the provider was overloaded",
  auth: "the login did not work, which is mended",
  network: "the connection to the provider was lost",
  lost: "its process was lost",
  timeout: "its time limit was reached",
  idle_timeout: "nothing came from it for too long",
  signal: "its process was ended by a signal",
  turn_limit: "its limit of turns was reached",
  check_failed: "it ended although the task is not done",
  cancelled: "the service that runs it was stopped for a while",
  spawn: "it could not be started for a while",
  storage: "the disk was full for a while",
};

/** Ends before anything was done: without a session there is nothing to tell. */
const NOT_BEGUN: ReadonlySet<FailureClass> = new Set(["spawn", "storage"]);

/** A message may hold what a check or a provider printed. */
const MESSAGE_CHARACTERS = 2_000;

export interface Resumption {
  /** The session to go on with; null begins afresh. */
  readonly sessionId: string | null;
  /** What the agent reads first; null when nothing happened before. */
  readonly note: string | null;
}

/** Decides from stored facts alone, so every daemon decides the same. @param canResume whether its command line can go on with a session */
export function resumption(before: Assignment["before"], canResume: boolean): Resumption {
  const was = before?.class ?? null;
  if (before == null || was === null) return { sessionId: null, note: null };
  const said = shortened(before.message);
  const reason = RESUMED[was];
  if (canResume && before.sessionId !== null && reason !== undefined) {
    const detail = was === "check_failed" && said !== "" ? `: ${said}` : "";
    return {
      sessionId: before.sessionId,
      note: `Your work was interrupted: ${reason}${detail}. Look at what is there already, then go on with the task until it is done.`,
    };
  }
  if (NOT_BEGUN.has(was)) return { sessionId: null, note: null };
  return {
    sessionId: null,
    note: `An earlier attempt at the task below ended with ${was}${said === "" ? "" : ` (${said})`}. Its conversation is not at hand; some of its work may be there already, so look before you begin.`,
  };
}

function shortened(message: string | null): string {
  const text = (message ?? "").trim();
  return text.length > MESSAGE_CHARACTERS ? `${text.slice(0, MESSAGE_CHARACTERS)} ...` : text;
}

/** What the agent reads: the note alone when it goes on with a session, which has the task; else the note, then the task. */
export function inputOf({ sessionId, note }: Resumption, prompt: Uint8Array): Uint8Array {
  const words = new TextEncoder().encode(note === null ? "" : `${note}\n${sessionId === null ? "\n" : ""}`);
  if (sessionId !== null) return words;
  const input = new Uint8Array(words.length + prompt.length);
  input.set(words);
  input.set(prompt, words.length);
  return input;
}
