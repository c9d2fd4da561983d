/** What a model server says, in no API's words: each API turns these into its own bytes. */

/** A call of a tool that the model asks for. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

/** What a request says about its conversation. */
export interface Talk {
  readonly model: string;
  readonly streams: boolean;
  /** Names of the tools that are offered. */
  readonly tools: readonly string[];
  /** Texts of the user in their order, the notices of the command line included. */
  readonly userTexts: readonly string[];
  /** Results of tools since the last text of the user: after a resume older ones say nothing about this prompt. */
  readonly newResults: number;
  /** Results of tools in the whole history. */
  readonly allResults: number;
}

/** What a request's history has of the user: a text, or the result of a tool. */
export type Heard =
  | { readonly kind: "result" }
  /** `notice`: the command line's own words, which stand beside results and begin nothing new. */
  | { readonly kind: "text"; readonly text: string; readonly notice: boolean };

/** Why a request is refused: one word for what each API says in its own way. */
export type Fault =
  | { readonly kind: "rate_limit"; readonly retryAfterSeconds: number }
  /** The plan's limit is used up until then. */
  | { readonly kind: "usage_limit"; readonly resetAtSeconds: number; readonly nowSeconds: number }
  | { readonly kind: "auth" | "forbidden" | "no_model" | "server" | "overloaded" | "credit" | "context" };

/** A refusal as it goes over the wire. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** One server-sent event. */
export interface StreamEvent {
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What the model answers: a text, and a call of a tool after it or none. */
export interface Answer {
  readonly text: string;
  readonly tool: ToolCall | null;
}

/** Tokens that every answer claims: odd and fixed, so that a test sees which number is which. */
export const USAGE = { input: 1234, cached: 100, output: 7 } as const;

/** One API of model servers. Pure. */
export interface ModelApi {
  /** What the path of its requests ends with. */
  readonly pathEnd: string;
  read(body: unknown): Talk;
  /** A call of whichever offered tool writes a file; null when none does. */
  writing(talk: Talk, file: string, content: string): ToolCall | null;
  /** A call of whichever offered tool runs a command; null when none does. */
  running(talk: Talk, command: string): ToolCall | null;
  /** An answer as a stream. */
  stream(answer: Answer, model: string): readonly StreamEvent[];
  /** How many events of a stream of text come before its first text is out, that one included. */
  readonly untilText: number;
  /** The same answer to a request that does not stream. */
  whole(answer: Answer, model: string): unknown;
  refusal(fault: Fault): Refusal;
  /** The event that ends a stream which fails in the middle. */
  readonly midStreamError: StreamEvent;
}

/** A value as an object that may have any member. */
export const members = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};

/** A value as a list. */
export const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** A value as a text; empty when it is none. */
export const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** What a request says about its conversation. @param heard its history, in its order */
export function talkOf(request: Readonly<Record<string, unknown>>, heard: Iterable<Heard>): Talk {
  const userTexts: string[] = [];
  let newResults = 0;
  let allResults = 0;
  for (const one of heard) {
    if (one.kind === "result") {
      newResults += 1;
      allResults += 1;
    } else {
      userTexts.push(one.text);
      if (!one.notice) newResults = 0;
    }
  }
  return {
    model: text(request["model"]),
    streams: request["stream"] === true,
    tools: list(request["tools"]).map((tool) => text(members(tool)["name"])),
    userTexts,
    newResults,
    allResults,
  };
}
