/** Asks the daemon over its socket. */
import type { IncomingMessage } from "node:http";
import { AppError, type ErrorDocument, type ErrorKind } from "../core/errors.ts";
import type { Health } from "../ops/operation.ts";
import { API, HEADERS, HOST, STATUS_OF } from "./protocol.ts";

export interface ClientOptions {
  readonly socket: string;
  readonly version: string;
  readonly runToken: string | null;
  readonly insideRun: boolean;
  /** A daemon that has not answered by then is stuck. */
  readonly patienceMs?: number;
}

/** Longest wait for an answer: an operation is some transactions long, on a machine that may be busy. */
const PATIENCE_MS = 60_000;
/** Longest wait for health, which asks the daemon for nothing but its attention. */
const HEALTH_PATIENCE_MS = 5_000;

/** Nobody listens there: no daemon, or one that is gone. */
const ABSENT = new Set(["ENOENT", "ECONNREFUSED", "ENOTSOCK", "EACCES", "ENOTDIR"]);
/** It went away before it answered. */
const GONE = new Set(["ECONNRESET", "EPIPE"]);

/**
 * Calls an operation. Errors: AppError unreachable `daemon_down` when nobody listens, `daemon_gone` when it went away while
 * answering (the change may have been made), `daemon_unresponsive`; and what the operation answers.
 */
export async function callDaemon(options: ClientOptions, name: string, input: unknown): Promise<unknown> {
  const body = JSON.stringify(input);
  return exchange(options, "POST", `${API}/ops/${encodeURIComponent(name)}`, body, options.patienceMs ?? PATIENCE_MS);
}

/** What the daemon says of itself. Errors as of `callDaemon`. */
export async function askHealth(options: ClientOptions): Promise<Health> {
  return (await exchange(options, "GET", `${API}/health`, null, options.patienceMs ?? HEALTH_PATIENCE_MS)) as Health;
}

async function exchange(
  options: ClientOptions,
  method: "GET" | "POST",
  path: string,
  body: string | null,
  patienceMs: number,
): Promise<unknown> {
  // Loaded here: a list asks nobody, and shares this file's chunk.
  const { request: send } = await import("node:http");
  return new Promise((resolve, reject) => {
    const outgoing = send(
      {
        socketPath: options.socket,
        method,
        path,
        timeout: patienceMs,
        agent: false,
        headers: {
          host: HOST,
          connection: "close",
          [HEADERS.version]: options.version,
          ...(options.runToken === null ? {} : { [HEADERS.runToken]: options.runToken }),
          ...(options.insideRun ? { [HEADERS.runId]: "yes" } : {}),
          ...(body === null
            ? {}
            : { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) }),
        },
      },
      (incoming) => {
        read(incoming).then(resolve, reject);
      },
    );
    outgoing.on("timeout", () =>
      outgoing.destroy(
        new AppError("unreachable", "daemon_unresponsive", `the daemon has not answered for ${patienceMs} ms`, {
          hint: "Its log says more; what runs is not harmed when the daemon is ended and started again.",
        }),
      ),
    );
    outgoing.on("error", (error) => reject(toUnreachable(error)));
    outgoing.end(body ?? undefined);
  });
}

function toUnreachable(error: Error): AppError {
  if (error instanceof AppError) return error;
  const code = "code" in error ? String(error.code) : "";
  if (ABSENT.has(code))
    return new AppError("unreachable", "daemon_down", "no daemon is running", { hint: "drover up", cause: error });
  return new AppError(
    "unreachable",
    "daemon_gone",
    GONE.has(code) ? "the daemon went away before it answered" : `the daemon cannot be asked: ${error.message}`,
    { hint: "Look with `drover status` whether it was done before you ask again.", cause: error },
  );
}

async function read(incoming: IncomingMessage): Promise<unknown> {
  let text = "";
  incoming.setEncoding("utf8");
  try {
    for await (const piece of incoming as AsyncIterable<string>) text += piece;
  } catch (cause) {
    throw toUnreachable(cause instanceof Error ? cause : new Error(String(cause)));
  }
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (cause) {
    throw new AppError("unreachable", "daemon_gone", "the daemon's answer is not whole", { cause });
  }
  const status = incoming.statusCode ?? 500;
  if (status < 400) return answer;
  const { error } = answer as { error?: Omit<ErrorDocument, "kind"> };
  const kind = (Object.keys(STATUS_OF) as ErrorKind[]).find((one) => STATUS_OF[one] === status);
  throw new AppError(
    kind ?? (status < 500 ? "invalid" : "internal"),
    error?.code ?? "internal",
    error?.message ?? text,
    {
      ...(error?.hint === undefined ? {} : { hint: error.hint }),
      ...(error?.path === undefined ? {} : { path: error.path }),
      ...(error?.problems === undefined ? {} : { problems: error.problems }),
    },
  );
}
