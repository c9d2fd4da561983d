/** Whether an agent's next attempt goes on with the session of the one before, and what it is told. */
import type { SessionUse } from "../core/agent.ts";
import type { Agents } from "../core/ports.ts";
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
  oom: "its process was ended because memory ran out",
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

/** What a provider's command line can do with a session that is there. */
export interface SessionTraits {
  readonly resume: boolean;
  readonly fork: boolean;
}

export interface Resumption {
  readonly how: SessionUse;
  /** The session to go on with or to copy; null begins a new one. */
  readonly sessionId: string | null;
  /** What the agent reads first; null when nothing happened before. */
  readonly note: string | null;
  /** Whether it is told the task: one that goes on has it in its session. */
  readonly tellsTask: boolean;
}

const BEGINS: Resumption = { how: "begin", sessionId: null, note: null, tellsTask: true };

/** Decides from stored facts alone, so every daemon decides the same. */
export function resumption(before: Assignment["before"], can: SessionTraits): Resumption {
  const was = before?.class ?? null;
  if (before == null || was === null) return BEGINS;
  const said = shortened(before.message);
  const refused = before.sessionRefused ?? null;
  if (refused !== null) return afterRefusal(refused, before.sessionId, can, earlier(was, said));
  const reason = RESUMED[was];
  if (can.resume && before.sessionId !== null && reason !== undefined) {
    const detail = was === "check_failed" && said !== "" ? `: ${said}` : "";
    return {
      how: "resume",
      sessionId: before.sessionId,
      note: `Your work was interrupted: ${reason}${detail}. Look at what is there already, then go on with the task until it is done.`,
      tellsTask: false,
    };
  }
  // Where none of its attempts has got as far as a folder, none has begun.
  const began = before.sessionId !== null || (before.folder ?? null) !== null;
  return NOT_BEGUN.has(was) || !began ? BEGINS : { ...BEGINS, note: earlier(was, said) };
}

const earlier = (was: FailureClass, said: string): string =>
  `An earlier attempt at the task below ended with ${was}${said === "" ? "" : ` (${said})`}. Its conversation is not at hand; some of its work may be there already, so look before you begin.`;

/** Each way to a session once: what is there already, a copy of it, a new one. */
function afterRefusal(refused: SessionUse, sessionId: string | null, can: SessionTraits, note: string): Resumption {
  // Whose session it is nobody knows, so the task is told whatever is in it.
  const goesOn = {
    sessionId,
    note: "This conversation was begun before and may hold work at the task below. Look at what is there already, then do it.",
    tellsTask: true,
  };
  if (sessionId !== null && refused === "begin" && can.resume) return { ...goesOn, how: "resume" };
  if (sessionId !== null && (refused === "begin" || refused === "resume") && can.fork)
    return { ...goesOn, how: "fork" };
  return { how: "afresh", sessionId: null, note, tellsTask: true };
}

/** How an attempt came to its session, as it was decided at its start: from the same facts, also by a daemon that came later. */
export function wayOf(
  { run, before }: Pick<Assignment, "run" | "before">,
  agents: Pick<Agents, "traits">,
): { readonly how: SessionUse; readonly copyOf?: string } {
  if (run.target.kind !== "agent") return { how: "begin" };
  const { how, sessionId } = resumption(before, agents.traits(run.target.provider));
  return how === "fork" && sessionId !== null ? { how, copyOf: sessionId } : { how };
}

/**
 * What the refusal of a session means for the next attempt: `sessionGone` says that nothing goes on with it any more.
 * Nothing when it was not refused. @param said what the provider said of it
 */
export function refusalOf(
  how: SessionUse,
  said: { readonly sessionGone?: boolean; readonly sessionUsed?: boolean },
): { readonly sessionRefused?: SessionUse; readonly sessionGone?: true } {
  const gone = said.sessionGone === true;
  if (!gone && said.sessionUsed !== true) return {};
  return { sessionRefused: how, ...(gone || how === "fork" || how === "afresh" ? { sessionGone: true } : {}) };
}

function shortened(message: string | null): string {
  const text = (message ?? "").trim();
  return text.length > MESSAGE_CHARACTERS ? `${text.slice(0, MESSAGE_CHARACTERS)} ...` : text;
}

/** What the agent reads: the note, and the task where it has to be told. */
export function inputOf({ note, tellsTask }: Pick<Resumption, "note" | "tellsTask">, prompt: Uint8Array): Uint8Array {
  const words = new TextEncoder().encode(note === null ? "" : `${note}\n${tellsTask ? "\n" : ""}`);
  if (!tellsTask) return words;
  const input = new Uint8Array(words.length + prompt.length);
  input.set(words);
  input.set(prompt, words.length);
  return input;
}
