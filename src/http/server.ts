/**
 * The daemon's socket: one route for every operation that the daemon performs, and its health. It loops over the registry
 * and knows no operation. It is plain node:http: one POST route needs no router, and the daemon's start pays for none.
 */
import { chmodSync, lstatSync, mkdirSync, renameSync, rmdirSync, unlinkSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, type Socket } from "node:net";
import { dirname, join } from "node:path";
import { AppError, type ErrorKind, toDocument } from "../core/errors.ts";
import type { AnyOperation, Health } from "../ops/operation.ts";
import { API, HEADERS, HOST, isCompatible, MAX_BODY_BYTES, STATUS_OF } from "./protocol.ts";

/** What a request shows of who sent it. */
export interface Presented {
  readonly token: string | null;
  readonly insideRun: boolean;
}

export interface ServerOptions {
  readonly socket: string;
  readonly version: string;
  health(): Health;
  /** Finds an operation by name; undefined for one that is not served here. */
  find(name: string): Promise<AnyOperation | undefined>;
  perform(operation: AnyOperation, input: unknown, presented: Presented): Promise<unknown>;
  /** Records a fault of our own; answers the id under which it is found in the log. */
  onFault(error: unknown): string;
  /** Called when a request for an operation begins and when it is answered: a daemon that ends when idle waits for it. */
  onRequest(active: number): void;
  /** Called when the socket was gone: null once it is there anew, or why it cannot be, then again at every look. */
  onSocketLost?(failure: AppError | null): void;
  /** Whether the daemon's lock is still ours; when it is not, whoever answers at the path may stay there. */
  holdsLock?(): boolean;
  /** Called when somebody else has the lock and the path. */
  onReplaced?(): void;
  /** Whether the socket's folder is for it alone, and goes with it when it is empty. */
  readonly removeFolder?: boolean;
  readonly maxBodyBytes?: number;
  /** Time between two looks at whether the socket is still there; 2 s when left out. */
  readonly lookMs?: number;
}

export interface Server {
  /** Takes no new requests, waits for those that are there, and removes the socket where it is still ours. */
  close(patienceMs: number): Promise<void>;
}

/** A lost socket is made anew well before a command that waits for it gives up; a look is one `lstat`. */
const LOOK_MS = 2_000;
/** Longest wait of the look for whoever listens on a socket that is not ours. */
const STRANGER_PATIENCE_MS = 1_000;

/**
 * Listens on the socket, and listens anew when its file is gone: a runtime folder is emptied when its user logs out. Whoever
 * calls this holds the daemon's lock, so whatever is at the path is replaced.
 * Errors: AppError unreachable `socket_failed`.
 */
export async function serve(options: ServerOptions): Promise<Server> {
  const { socket, onSocketLost, removeFolder = false, lookMs = LOOK_MS } = options;
  let listener = await listen(options);
  let isClosing = false;
  let looking: Promise<void> | null = null;

  async function look(): Promise<void> {
    if (listener.isInPlace()) return;
    if (options.holdsLock?.() === false && (await isAnswered(socket))) return options.onReplaced?.();
    try {
      const lost = listener;
      listener = await listen(options);
      void lost.close(0);
      onSocketLost?.(null);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      onSocketLost?.(error);
    }
  }
  const timer = setInterval(() => {
    if (isClosing || looking !== null) return;
    looking = look()
      .catch((error: unknown) => void options.onFault(error))
      .finally(() => (looking = null));
  }, lookMs);
  timer.unref();

  return {
    async close(patienceMs) {
      isClosing = true;
      clearInterval(timer);
      await looking;
      await listener.close(patienceMs);
      if (removeFolder)
        try {
          rmdirSync(dirname(socket));
        } catch {
          // something else lies in it, or it is gone
        }
    },
  };
}

interface Listener {
  /** Whether the file at the socket's path is this listener's. */
  isInPlace(): boolean;
  close(patienceMs: number): Promise<void>;
}

/** Told apart by more than the number, which a file system gives again. */
function identityOf(path: string): string | null {
  try {
    const { dev, ino, birthtimeNs } = lstatSync(path, { bigint: true });
    return `${dev} ${ino} ${birthtimeNs}`;
  } catch {
    return null; // gone, or its folder is
  }
}

let bound = 0;

async function listen(options: ServerOptions): Promise<Listener> {
  const { socket, onRequest } = options;
  let active = 0;
  let closing = false;
  const turns = takeTurns();
  // A request without a Host is refused by us, with a document, as one with a wrong one is.
  const server = createServer({ requireHostHeader: false }, (request, response) => {
    // Asking for health is no work: a daemon that ends when idle is not kept by whoever watches it.
    const isWork = request.url?.startsWith(`${API}/ops/`) === true;
    if (isWork) {
      active += 1;
      onRequest(active);
    }
    turns.take(
      request,
      response,
      () => {
        if (closing) response.setHeader("connection", "close");
        return answer(options, request, response).catch((error: unknown) => refuse(options, response, error));
      },
      () => {
        if (!isWork) return;
        active -= 1;
        onRequest(active);
      },
    );
  });
  // What Node would refuse by itself, or drop without a word, is told why as everything else is.
  server.on("clientError", (error: NodeJS.ErrnoException, connection) =>
    turns.behind(connection as Socket, () => refuseRaw(error.code ?? "", connection as Socket)),
  );
  server.on("connect", (_request, connection) =>
    turns.behind(connection as Socket, () => refuseRaw("CONNECT", connection as Socket)),
  );
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) =>
    turns.take(request, response, async () =>
      refuse(options, response, new AppError("invalid", "bad_request", "no expectation is met here but 100-continue")),
    ),
  );
  // Requests are answered in milliseconds; a client that stops in the middle of one must not hold us.
  server.requestTimeout = 30_000;
  server.headersTimeout = 10_000;
  server.keepAliveTimeout = 1_000;
  const folder = dirname(socket);
  prepareFolder(folder);
  // Bound under a name of its own and moved into place: closing a server removes the name that it was bound under, whoever
  // has it by then. No longer than any socket's own name, since the path's length is limited.
  bound += 1;
  const binding = join(folder, `.${process.pid.toString(36)}-${bound.toString(36)}`);
  rmIfThere(binding);
  await new Promise<void>((resolve, reject) => {
    const fail = (cause: Error) => reject(socketFailed(socket, `the socket cannot be opened: ${cause.message}`, cause));
    server.once("error", fail);
    // The file is made with the folder's protection; its own mode is set before anybody knows of it.
    const before = process.umask(0o177);
    server.listen(binding, () => {
      try {
        chmodSync(binding, 0o600);
        renameSync(binding, socket);
        resolve();
      } catch (error) {
        server.close();
        fail(error instanceof Error ? error : new Error(String(error)));
      }
    });
    process.umask(before);
  });
  const own = identityOf(socket);
  const isInPlace = () => own !== null && identityOf(socket) === own;
  return {
    isInPlace,
    async close(patienceMs) {
      closing = true;
      if (isInPlace()) rmIfThere(socket);
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      const timer = setTimeout(() => server.closeAllConnections(), patienceMs);
      await closed;
      clearTimeout(timer);
    },
  };
}

/** The requests of one connection. */
interface Line {
  /** Settled when all that came so far is answered; without the last one, when all before it is. */
  tail: Promise<void>;
  before: Promise<void>;
  last: IncomingMessage | null;
  /** An answer closed the connection. */
  isOver: boolean;
}

interface Turns {
  /**
   * Begins with a request when those before it on its connection are answered, and not at all behind one whose answer
   * closes it: nobody would be told what became of it.
   * @param ended called once: nothing goes on for it any more, and it is answered or its connection is gone
   */
  take(request: IncomingMessage, response: ServerResponse, begin: () => Promise<void>, ended?: () => void): void;
  /** Does it when the whole requests of a connection are answered, unless one of the answers closed it. */
  behind(connection: Socket, act: () => void): void;
}

/** Node hands over requests that came at once together, and sends the answers in order. */
function takeTurns(): Turns {
  const lines = new WeakMap<Socket, Line>();
  const lineOf = (connection: Socket): Line => {
    const known = lines.get(connection);
    if (known !== undefined) return known;
    const fresh = { tail: Promise.resolve(), before: Promise.resolve(), last: null, isOver: false };
    lines.set(connection, fresh);
    return fresh;
  };
  return {
    take(request, response, begin, ended) {
      const { socket: connection } = request;
      const line = lineOf(connection);
      const isAnswered = new Promise<void>((resolve) => {
        // Those behind the one that closed their connection are never told of its end by Node.
        const end = (): void => {
          response.off("close", end);
          connection.off("close", end);
          resolve();
        };
        response.once("close", end);
        connection.once("close", end);
      });
      line.before = line.tail;
      line.last = request;
      line.tail = line.before.then(async () => {
        if (line.isOver || connection.destroyed) return;
        await begin();
        if (!response.shouldKeepAlive || response.getHeader("connection") === "close") line.isOver = true;
        await isAnswered;
      });
      if (ended !== undefined) void line.tail.then(ended);
    },
    behind(connection, act) {
      // Nobody else looks after it any more: that the other side is gone is heard here, or it would end the process.
      connection.on("error", () => connection.destroy());
      const line = lines.get(connection);
      if (line === undefined) return act();
      // Of one that is not whole no more comes.
      void (line.last?.complete === false ? line.before : line.tail).then(() => {
        if (!line.isOver) act();
      });
    },
  };
}

function rmIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch {
    // there is none, or binding says why it cannot go
  }
}

/** Whether anybody accepts connections at the path. */
async function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const connection = connect(path);
    const end = (is: boolean): void => {
      connection.destroy();
      resolve(is);
    };
    connection.setTimeout(STRANGER_PATIENCE_MS, () => end(true));
    connection.once("connect", () => end(true));
    connection.once("error", () => end(false));
  });
}

const socketFailed = (path: string, message: string, cause?: unknown): AppError =>
  new AppError("unreachable", "socket_failed", message, {
    path,
    hint: "Its folder must be writable for this user alone. XDG_RUNTIME_DIR or DROVER_HOME moves it.",
    cause,
  });

/** The socket's folder: ours alone. Errors: AppError unreachable `socket_failed` for a folder of somebody else. */
function prepareFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw socketFailed(folder, `the socket's folder cannot be made: ${why}`, cause);
  }
  const found = lstatSync(folder);
  const uid = process.getuid?.();
  if (!found.isDirectory() || (uid !== undefined && found.uid !== uid))
    throw new AppError("unreachable", "socket_failed", "the socket's folder does not belong to this user", {
      path: folder,
      hint: "Remove it, or move the socket with XDG_RUNTIME_DIR or DROVER_HOME.",
    });
  if ((found.mode & 0o077) !== 0) chmodSync(folder, 0o700);
}

async function answer(options: ServerOptions, request: IncomingMessage, response: ServerResponse): Promise<void> {
  checkSender(request);
  const path = (request.url ?? "").split("?", 1)[0] ?? "";
  if (path === `${API}/health`) {
    if (request.method !== "GET") throw wrongMethod(response, "GET");
    return send(response, 200, options.health());
  }
  const name = path.startsWith(`${API}/ops/`) ? decode(path.slice(`${API}/ops/`.length)) : null;
  const operation = name === null ? undefined : await options.find(name);
  if (operation === undefined)
    throw new AppError("not_found", "operation_not_found", `there is nothing at ${JSON.stringify(path)}`, {
      hint: "Operations are at /api/v1/ops/NAME; `drover help` lists the commands that they are.",
    });
  // A change by GET could be caused by any page that can make a browser ask for a picture.
  if (request.method !== "POST") throw wrongMethod(response, "POST");
  if (!/^application\/json\s*(;|$)/i.test(request.headers["content-type"] ?? ""))
    throw new AppError("invalid", "not_json", "the body must be application/json");
  const version = one(request, HEADERS.version);
  if (version !== null && !operation.anyVersion && !isCompatible(version, options.version))
    throw new AppError(
      "conflict",
      "restart_needed",
      `restart needed: the daemon is version ${options.version}, this command is ${version}`,
      { hint: "drover down && drover up; running attempts go on meanwhile" },
    );
  const input = await readBody(request, options.maxBodyBytes ?? MAX_BODY_BYTES);
  const presented = { token: one(request, HEADERS.runToken), insideRun: one(request, HEADERS.runId) !== null };
  send(response, 200, await options.perform(operation, input, presented));
}

/** Refuses what a web page could have sent. Errors: AppError unauthorised `bad_host`, `bad_origin`. */
function checkSender(request: IncomingMessage): void {
  const host = (request.headers.host ?? "").replace(/:\d+$/, "").toLowerCase();
  if (host !== HOST && host !== "localhost")
    throw new AppError("unauthorised", "bad_host", "this Host is not served here");
  if (request.headers.origin !== undefined || (one(request, "sec-fetch-site") ?? "none") !== "none")
    throw new AppError("unauthorised", "bad_origin", "requests of web pages are not served here");
}

function one(request: IncomingMessage, header: string): string | null {
  const value = request.headers[header];
  return typeof value === "string" && value !== "" ? value : null;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null; // a torn escape is no name
  }
}

function wrongMethod(response: ServerResponse, allowed: string): AppError {
  response.setHeader("allow", allowed);
  return new AppError("invalid", "wrong_method", `only ${allowed} is served here`);
}

async function readBody(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const tooLarge = () =>
    new AppError("invalid", "body_too_large", `a request may hold at most ${maxBytes} bytes`, {
      hint: "Put what is large into a file and name it.",
    });
  if (Number(request.headers["content-length"] ?? 0) > maxBytes) throw tooLarge();
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of request as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > maxBytes) throw tooLarge();
      pieces.push(piece);
    }
  } catch (error) {
    if (error instanceof AppError) throw error;
    // Whoever sent it has gone, or it broke off: nothing was done, and no fault of ours.
    throw new AppError("invalid", "bad_request", "the body of the request is not whole", { cause: error });
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(pieces));
  } catch {
    throw new AppError("invalid", "not_json", "the body is not UTF-8");
  }
  try {
    return text === "" ? {} : JSON.parse(text);
  } catch {
    throw new AppError("invalid", "not_json", "the body is not JSON");
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  if (response.headersSent || response.destroyed) return;
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  response.end(text);
}

function refuse(options: ServerOptions, response: ServerResponse, error: unknown): void {
  let known = error instanceof AppError ? error : null;
  if (known === null || known.kind === "internal") {
    const id = options.onFault(error);
    known = new AppError("internal", "internal", `a fault of drover's own (${id})`, {
      hint: "The daemon's log has it under this id.",
    });
  }
  const { kind, ...document } = toDocument(known);
  // What was not read of a refused body must not be taken for the next request.
  response.setHeader("connection", "close");
  send(response, statusOf(kind, known.code), { error: document });
}

/** How long a connection stays that was refused and is not ended by its client. */
const RAW_PATIENCE_MS = 1_000;

/** What is no request that we could answer, by what Node says of it: our words and their HTTP status. */
const RAW: Readonly<Record<string, readonly [status: string, message: string]>> = {
  HPE_HEADER_OVERFLOW: ["431 Request Header Fields Too Large", "the head of the request is too large"],
  ERR_HTTP_REQUEST_TIMEOUT: ["408 Request Timeout", "the request did not arrive in time"],
  CONNECT: ["405 Method Not Allowed", "no connection is made for anybody here"],
};

/** Answers what is no HTTP, or only the beginning of it, and closes the connection. Its errors are listened for. */
function refuseRaw(reason: string, connection: Socket): void {
  if (!connection.writable) {
    connection.destroy();
    return;
  }
  const [status, message] = RAW[reason] ?? ["400 Bad Request", "this is no HTTP request"];
  const { kind: _, ...document } = toDocument(new AppError("invalid", "bad_request", message));
  const body = `${JSON.stringify({ error: document })}\n`;
  connection.resume();
  connection.setTimeout(RAW_PATIENCE_MS, () => connection.destroy());
  connection.end(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}

function statusOf(kind: ErrorKind, code: string): number {
  if (code === "wrong_method") return 405;
  if (code === "body_too_large") return 413;
  return STATUS_OF[kind];
}
