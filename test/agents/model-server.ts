/**
 * A model server on the loopback interface for real agent command lines: it answers as the vendors' do, and as they do when
 * they fail. The scenario stands in the address that an agent is given, so one server serves many agents at once:
 *
 *   Claude Code   ANTHROPIC_BASE_URL=http://127.0.0.1:PORT/s/<scenario>/<test id>
 *   Codex         base_url=http://127.0.0.1:PORT/s/<scenario>/<test id>/v1
 *
 * | scenario | what the server does |
 * | --- | --- |
 * | `ok` | says OK |
 * | `slow~MS` | says OK after that time |
 * | `together~N` | says OK to nobody before N requests are there, none of them answered; fails when they do not come |
 * | `tool` | has the file written that the prompt names with `FILE=path` (and `TEXT=content`), then says OK |
 * | `shell` | has the command run that the prompt gives with `SHELL=command`, else one that prints and stays; then says OK |
 * | `loop` | calls a tool again and again, `LOOP_CALLS` times at most |
 * | `429`, `429long` | rate limit; again in 2 s, in an hour |
 * | `401`, `403`, `404`, `500`, `503`, `529` | as the vendors say them; 503 and 529 are both "overloaded" |
 * | `quota~SECONDS` | the plan's usage limit until that instant (seconds since 1970), then says OK; without it an hour from now |
 * | `credit`, `context` | no money; a conversation that is too long |
 * | `drop`, `droponce` | breaks the connection after the first text; only the first time |
 * | `hang`, `hangstart` | silent after the first text; silent from the start |
 * | `errevent` | an error in the middle of a stream |
 * | `flaky~N`, `flaky429~N` | overloaded, or rate limited, N times; then says OK |
 *
 * A failure holds for requests that do not stream too, since command lines fall back to those.
 */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { messagesApi } from "./messages-api.ts";
import type { Answer, Fault, ModelApi, Talk } from "./model-api.ts";
import { responsesApi } from "./responses-api.ts";

const APIS: readonly ModelApi[] = [messagesApi, responsesApi];

/** Calls of a tool in the scenario `loop`: a model that never ends would keep an agent without a limit for ever. */
export const LOOP_CALLS = 20;
/** From the first text to the end of the connection in `drop`: the text has arrived, so that the agent knows of the stream. */
const DROP_MS = 150;
/** Longest wait of `received`, on a machine that does other things too. */
const PATIENCE_MS = 60_000;
/** Prints and stays, and is no bare `sleep`, which Claude Code refuses to run. */
const STAYING = "echo working; tail -f /dev/null";

/** A request as it came in. */
export interface Received {
  /** Among all requests of its test, from 1. */
  readonly number: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly method: string;
  /** Behind the scenario and the test, without the query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** Parsed JSON; the text itself when it is none. */
  readonly body: unknown;
  /** What it says about its conversation; null for what asks no model (`HEAD /`, lists of models). */
  readonly talk: Talk | null;
  /** Settles when the answer was read whole (true), or the agent went away before (false). */
  readonly answered: Promise<boolean>;
}

export interface ModelServer {
  /** Base address for Claude Code; Codex wants `/v1` behind it. */
  base(scenario: string, testId: string): string;
  /** From now on this test's requests get another scenario, whatever stands in their address. */
  become(testId: string, scenario: string): void;
  /** What asked the model, in the order of arrival. */
  requests(testId: string): readonly Received[];
  /** Everything that asked for something else. */
  asides(testId: string): readonly Received[];
  /** The n-th request to the model, from 1, as soon as it is there; fails after a minute. */
  received(testId: string, number: number): Promise<Received>;
  close(): Promise<void>;
}

interface Log {
  scenario: string | null;
  readonly requests: Received[];
  readonly asides: Received[];
  readonly waiting: Set<() => void>;
}

/** What is done with one request. */
type Action =
  /** `together`: the requests that have to be there first. */
  | { readonly kind: "answer"; readonly answer: Answer; readonly delayMs: number; readonly together?: number }
  | { readonly kind: "refuse"; readonly fault: Fault }
  | { readonly kind: "drop" | "hang" | "hangstart" | "errevent" };

const OK: Action = { kind: "answer", answer: { text: "OK", tool: null }, delayMs: 0 };

const SIMPLE: Readonly<Record<string, Action>> = {
  ok: OK,
  "429": { kind: "refuse", fault: { kind: "rate_limit", retryAfterSeconds: 2 } },
  "429long": { kind: "refuse", fault: { kind: "rate_limit", retryAfterSeconds: 3600 } },
  "401": { kind: "refuse", fault: { kind: "auth" } },
  "403": { kind: "refuse", fault: { kind: "forbidden" } },
  "404": { kind: "refuse", fault: { kind: "no_model" } },
  "500": { kind: "refuse", fault: { kind: "server" } },
  "503": { kind: "refuse", fault: { kind: "overloaded" } },
  "529": { kind: "refuse", fault: { kind: "overloaded" } },
  credit: { kind: "refuse", fault: { kind: "credit" } },
  context: { kind: "refuse", fault: { kind: "context" } },
  drop: { kind: "drop" },
  hang: { kind: "hang" },
  hangstart: { kind: "hangstart" },
  errevent: { kind: "errevent" },
};

/** The last value that the prompts give with `NAME=`; a resumed conversation holds older ones too. */
function asked(talk: Talk, pattern: RegExp): string | null {
  return talk.userTexts.flatMap((text) => [...text.matchAll(pattern)]).at(-1)?.[1] ?? null;
}

function decide(scenario: string, number: number, api: ModelApi, talk: Talk, now: number): Action {
  const [name = "", argument = ""] = scenario.split("~");
  const simple = SIMPLE[name];
  if (simple !== undefined) return simple;
  const call = (tool: Answer["tool"]): Action =>
    tool === null ? OK : { kind: "answer", answer: { text: "I shall do that.", tool }, delayMs: 0 };
  switch (name) {
    case "slow":
      return { ...OK, kind: "answer", answer: { text: "OK", tool: null }, delayMs: Number(argument) };
    case "together":
      return { kind: "answer", answer: { text: "OK", tool: null }, delayMs: 0, together: Number(argument) };
    case "tool": {
      const file = asked(talk, /FILE=(\S+)/g);
      if (file === null || talk.newResults > 0) return OK;
      return call(api.writing(talk, file, asked(talk, /TEXT=(\S+)/g) ?? "written by the model"));
    }
    case "shell":
      return talk.newResults > 0 ? OK : call(api.running(talk, asked(talk, /SHELL=(.+)$/gm) ?? STAYING));
    case "loop":
      return number > LOOP_CALLS ? OK : call(api.running(talk, `echo ${number}`));
    case "quota": {
      const nowSeconds = Math.floor(now / 1000);
      const resetAtSeconds = argument === "" ? nowSeconds + 3600 : Number(argument);
      if (resetAtSeconds * 1000 <= now) return OK;
      return { kind: "refuse", fault: { kind: "usage_limit", resetAtSeconds, nowSeconds } };
    }
    case "droponce":
      return number === 1 ? { kind: "drop" } : OK;
    case "flaky":
      return number <= Number(argument) ? { kind: "refuse", fault: { kind: "overloaded" } } : OK;
    case "flaky429":
      return number <= Number(argument) ? { kind: "refuse", fault: { kind: "rate_limit", retryAfterSeconds: 1 } } : OK;
    default:
      throw new Error(`there is no scenario ${scenario}`);
  }
}

/** Bytes of a request's body, whatever they were packed with. */
async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  const bytes = Buffer.concat(pieces);
  const unpack = { gzip: gunzipSync, br: brotliDecompressSync, deflate: inflateSync };
  const encoding = request.headers["content-encoding"] ?? "";
  const text = (encoding in unpack ? unpack[encoding as keyof typeof unpack](bytes) : bytes).toString("utf8");
  try {
    return JSON.parse(text);
  } catch {
    return text; // an empty body, or a test that sends nonsense on purpose
  }
}

const json = (
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
) => response.writeHead(status, { "content-type": "application/json", ...IDS, ...headers }).end(JSON.stringify(body));

/** They come back in the messages of both command lines. */
const IDS = { "request-id": "req_fake", "x-request-id": "req_fake" };

async function act(action: Action, api: ModelApi, talk: Talk, response: ServerResponse): Promise<void> {
  if (action.kind === "hangstart") return;
  if (action.kind === "refuse") {
    const { status, headers, body } = api.refusal(action.fault);
    json(response, status, body, headers);
    return;
  }
  if (action.kind === "answer" && action.delayMs > 0) {
    await Promise.race([new Promise((done) => setTimeout(done, action.delayMs).unref()), once(response, "close")]);
  }
  const answer = action.kind === "answer" ? action.answer : { text: "Let me", tool: null };
  if (!talk.streams) {
    if (action.kind === "answer") json(response, 200, api.whole(answer, talk.model));
    else if (action.kind === "errevent") json(response, 529, api.refusal({ kind: "overloaded" }).body);
    else if (action.kind === "drop") response.destroy();
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache", ...IDS });
  const events = api.stream(answer, talk.model);
  const sent = action.kind === "answer" ? events : events.slice(0, api.untilText);
  for (const { event, data } of sent) response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  if (action.kind === "answer") response.end();
  else if (action.kind === "drop") setTimeout(() => response.destroy(), DROP_MS);
  else if (action.kind === "errevent") {
    const { event, data } = api.midStreamError;
    response.end(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
  }
}

/** The n-th request of a test, from 1, as soon as it is there. */
function nth(log: Log, testId: string, number: number): Promise<Received> {
  return new Promise((done, fail) => {
    const look = () => {
      const found = log.requests[number - 1];
      if (found === undefined) return;
      clearTimeout(timer);
      log.waiting.delete(look);
      done(found);
    };
    const timer = setTimeout(() => {
      log.waiting.delete(look);
      fail(new Error(`waited in vain: request ${number} of ${testId}; there were ${log.requests.length}`));
    }, PATIENCE_MS);
    log.waiting.add(look);
    look();
  });
}

/** Opens a server on a free port of the loopback interface. */
export async function openModelServer(): Promise<ModelServer> {
  const logs = new Map<string, Log>();
  const logOf = (testId: string): Log => {
    const found = logs.get(testId) ?? { scenario: null, requests: [], asides: [], waiting: new Set() };
    logs.set(testId, found);
    return found;
  };

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const at = Date.now();
    const { pathname } = new URL(request.url ?? "/", "http://127.0.0.1");
    const [, scenario = "", testId = "", path = ""] = /^\/s\/([^/]+)\/([^/]+)(.*)$/.exec(pathname) ?? [];
    const body = await bodyOf(request);
    const log = logOf(testId);
    const api = request.method === "POST" ? APIS.find(({ pathEnd }) => path.endsWith(pathEnd)) : undefined;
    const talk = api?.read(body) ?? null;
    const into = talk === null ? log.asides : log.requests;
    const received: Received = {
      number: into.length + 1,
      at,
      method: request.method ?? "",
      path,
      headers: request.headers,
      body,
      talk,
      answered: once(response, "close").then(() => response.writableFinished),
    };
    into.push(received);
    for (const look of [...log.waiting]) look();
    if (api !== undefined && talk !== null) {
      const action = decide(log.scenario ?? scenario, received.number, api, talk, at);
      if (action.kind === "answer" && action.together !== undefined) await nth(log, testId, action.together);
      await act(action, api, talk, response);
    } else if (path.endsWith("/count_tokens")) {
      json(response, 200, { input_tokens: 1234 });
    } else if (request.method === "HEAD") {
      response.writeHead(200).end();
    } else {
      json(response, 404, { error: { type: "not_found_error", message: `nothing at ${path}` } });
    }
  };
  const server = createServer((request, response) => {
    serve(request, response).catch((error: unknown) => {
      // A scenario that does not exist is a fault of the test: no agent's retries may hide it.
      json(response, 418, { error: { type: "test_error", message: String(error) } });
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;

  return {
    base: (scenario, testId) => `http://127.0.0.1:${port}/s/${scenario}/${testId}`,
    become(testId, scenario) {
      logOf(testId).scenario = scenario;
    },
    requests: (testId) => logOf(testId).requests,
    asides: (testId) => logOf(testId).asides,
    received: (testId, number) => nth(logOf(testId), testId, number),
    async close() {
      server.close();
      server.closeAllConnections(); // those that hang on purpose
      await once(server, "close");
    },
  };
}
