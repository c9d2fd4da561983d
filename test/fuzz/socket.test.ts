/** The daemon's socket, spoken to by anything: each answer is a document with a code, what is refused changes nothing, and nobody is kept. */
import { connect } from "node:net";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Server, serve } from "../../src/http/server.ts";
import { findEntry, operations } from "../../src/ops/index.ts";
import { runIn } from "../../src/ops/perform.ts";
import { type Chance, chanceOf } from "../sim/chance.ts";
import { type Arena, checkError, openArena } from "./arena.ts";
import { budget, testLimitMs } from "./budget.ts";
import { until } from "../fixtures/hostile/arena.ts";
import { hostileText, inputFor, mutateText } from "./grammar.ts";
import { openWatchdog, type Watchdog } from "./watchdog.ts";

/** Far below what a daemon takes, so that what is too large costs little. */
const MAX_BODY_BYTES = 50_000;

let dog: Watchdog;
let arena: Arena;
let server: Server;
let socket: string;
let active = 0;
/** What each operation waits for before it is done. */
let held: Promise<void> = Promise.resolve();
const faults: unknown[] = [];
beforeAll(async () => {
  dog = openWatchdog();
  arena = await openArena(dog);
  socket = join(arena.folder, "s", "socket");
  const { health } = arena.context.control;
  server = await serve({
    socket,
    version: "0.0.0",
    maxBodyBytes: MAX_BODY_BYTES,
    health,
    async find(name) {
      const entry = findEntry(name);
      return entry === undefined || entry.where === "local" ? undefined : (await entry.load()).operation;
    },
    async perform(operation, input) {
      await held;
      try {
        return await runIn(operation, arena.context, input);
      } catch (error) {
        checkError(error, operation.name, operation);
        throw error;
      }
    },
    onFault(error) {
      faults.push(error);
      return "fault";
    },
    onRequest(count) {
      active = count;
    },
  });
});
afterAll(async () => {
  await server.close(0);
  await arena.close();
  await dog.close();
});
beforeEach(() => {
  faults.length = 0;
  held = Promise.resolve();
});

/** Writes the pieces one after the other, then ends, or cuts the connection; answers all that came back. */
const exchange = async (pieces: readonly Uint8Array[], cut: boolean): Promise<string> =>
  (await converse(pieces, cut)).came;

/** The same, and whether an answer may be lost: a client that cannot write any more does not read what came before. */
function converse(
  pieces: readonly Uint8Array[],
  cut: boolean,
): Promise<{ readonly came: string; readonly torn: boolean }> {
  return new Promise((resolve) => {
    const connection = connect(socket);
    const came: Buffer[] = [];
    let torn = cut;
    connection.on("data", (piece: Buffer) => came.push(piece));
    connection.on("error", () => (torn = true)); // it may refuse to read on
    connection.once("close", () => resolve({ came: Buffer.concat(came).toString("latin1"), torn }));
    connection.once("connect", () => {
      const next = (at: number): void => {
        const piece = pieces[at];
        if (piece === undefined) return void connection.end();
        connection.write(piece, () => setImmediate(next, at + 1));
        // At once: it is gone before anybody has read what it wrote.
        if (cut && at === pieces.length - 1) connection.destroy();
      };
      next(0);
    });
  });
}

/**
 * Waits for what goes on for clients that have left. A daemon that ends when it is idle would wait for ever for a request
 * that is counted and gone.
 */
const idle = (what: string): Promise<boolean> => until(`no request is counted after ${what}`, () => active === 0);

interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** The answers in what came back, each with a length and a document. */
function answersIn(text: string): readonly Answer[] {
  const answers: Answer[] = [];
  let rest = text.replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, "");
  while (rest !== "") {
    const head = /^HTTP\/1\.1 (\d{3})[^\r]*\r\n([^]*?)\r\n\r\n/.exec(rest);
    const length = /^content-length: (\d+)$/im.exec(head?.[2] ?? "")?.[1];
    if (head === null || length === undefined) throw new Error(`no answer of ours: ${rest.slice(0, 500)}`);
    const body = rest.slice(head[0].length, head[0].length + Number(length));
    // Whoever asks with HEAD is told the length of what is not sent.
    answers.push({
      status: Number(head[1]),
      body: body === "" ? null : (JSON.parse(Buffer.from(body, "latin1").toString()) as unknown),
    });
    rest = rest.slice(head[0].length + body.length).replace(/^HTTP\/1\.1 100 Continue\r\n\r\n/, "");
  }
  return answers;
}

const served = operations.filter(({ where }) => where !== "local").map(({ name }) => name);
const METHODS = [
  "POST",
  "POST",
  "POST",
  "GET",
  "HEAD",
  "PUT",
  "OPTIONS",
  "TRACE",
  "CONNECT",
  "post",
  "PRI",
  "M-SEARCH",
  "",
];
const HEADS = [
  ...[
    "Host: drover",
    "Host: localhost",
    "Host: evil.example",
    "Host:",
    "Host: drover\r\nHost: drover",
    "Content-Type: application/json",
  ],
  ...[
    "Content-Type: text/plain",
    "Content-Length: 5",
    "Content-Length: -1",
    "Content-Length: 99999999999999999999",
    "Content-Length: 2\r\nContent-Length: 3",
  ],
  ...[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Expect: 100-continue",
    "Expect: tea",
    "Connection: close",
    "Connection: keep-alive",
  ],
  ...[
    "Upgrade: websocket\r\nConnection: Upgrade",
    "Origin: http://evil.example",
    "Sec-Fetch-Site: cross-site",
    "Drover-Version: 9.9.9",
    "Drover-Version: x",
  ],
  ...[
    "Drover-Run-Token: x.y",
    "Drover-Run-Id: run_1",
    "X: \u0000",
    "X",
    ": x",
    " folded",
    `X: ${"a".repeat(20_000)}`,
    "Cookie: a=b",
    "__proto__: x",
  ],
];
const PATHS = [
  "/",
  "*",
  "/api/v1/health",
  "/api/v1/ops/",
  "/api/v1/ops/%",
  "/api/v1/ops/__proto__",
  "/api/v1/ops/loop.ls/../..",
  "//",
  "http://drover/api/v1/health",
  "/api/v2/ops/runs",
  `/${"a".repeat(20_000)}`,
  "/api/v1/ops/up",
  "/api/v1/ops/runs?x=1#y",
];

/** The bytes of one request: whole and right in most of its parts. */
async function request(chance: Chance): Promise<Buffer> {
  const name = chance.pick(served);
  const operation = (await findEntry(name)?.load())?.operation;
  if (operation === undefined) throw new Error(`there is an operation ${name}`);
  const input = inputFor(operation, arena.examples.get(name) ?? [], chance, arena.pool);
  const body = chance.pick([
    () => textOf(input),
    () => textOf(input),
    () => mutateText(textOf(input), chance),
    () => hostileText(chance),
    () => "",
    () => `${"[".repeat(20_000)}${"]".repeat(20_000)}`,
    () => '{"__proto__": {"a": 1}, "a": 1, "a": 2}',
    () => "x".repeat(chance.int(MAX_BODY_BYTES - 10, MAX_BODY_BYTES + 10)),
  ])();
  const bytes = Buffer.from(body);
  if (chance.hit(0.05) && bytes.length > 0) bytes[chance.int(0, bytes.length - 1)] = chance.int(128, 255);
  const chunked = chance.hit(0.2);
  const heads = [
    "Host: drover",
    "Content-Type: application/json",
    chunked ? "Transfer-Encoding: chunked" : `Content-Length: ${bytes.length}`,
  ];
  for (let more = chance.hit(0.5) ? 0 : chance.int(1, 3); more > 0; more--) {
    if (chance.hit(0.3)) heads.splice(chance.int(0, heads.length - 1), 1);
    heads.splice(chance.int(0, heads.length), 0, chance.pick(HEADS));
  }
  const method = chance.hit(0.8) ? "POST" : chance.pick(METHODS);
  const path = chance.hit(0.8) ? `/api/v1/ops/${name}` : chance.pick(PATHS);
  const version = chance.hit(0.95) ? "HTTP/1.1" : chance.pick(["HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "SSH-2.0"]);
  const head = `${method} ${path} ${version}\r\n${heads.join("\r\n")}\r\n\r\n`;
  const sized = (piece: Uint8Array): Buffer =>
    Buffer.concat([
      Buffer.from(
        `${chance.hit(0.95) ? piece.length.toString(16) : chance.pick(["-1", "fffffffffffffffff", "zz", "0"])}\r\n`,
      ),
      piece,
      Buffer.from("\r\n"),
    ]);
  const half = chance.int(0, bytes.length);
  const content = chunked
    ? Buffer.concat([sized(bytes.subarray(0, half)), sized(bytes.subarray(half)), Buffer.from("0\r\n\r\n")])
    : bytes;
  const whole = Buffer.concat([Buffer.from(head, "latin1"), content]);
  if (chance.hit(0.1)) return Buffer.from(mutateText(whole.toString("latin1"), chance), "latin1");
  return chance.hit(0.1) ? whole.subarray(0, chance.int(0, whole.length)) : whole;
}

function textOf(input: unknown): string {
  try {
    return JSON.stringify(input);
  } catch {
    return '{"a":'.repeat(5_000) + "1" + "}".repeat(5_000);
  }
}

/** The bytes in pieces that end anywhere. */
function pieces(bytes: Buffer, chance: Chance): readonly Buffer[] {
  const cuts = Array.from({ length: chance.int(0, 4) }, () => chance.int(0, bytes.length)).toSorted((a, b) => a - b);
  return [0, ...cuts]
    .map((from, at) => bytes.subarray(from, cuts[at] ?? bytes.length))
    .filter((piece) => piece.length > 0);
}

test(
  "any bytes get documents with a code or nothing at all, and the next one is served",
  async () => {
    const count = { answers: 0, fine: 0 };
    await fc.assert(
      fc.asyncProperty(fc.noShrink(fc.nat()), async (seed) => {
        const chance = chanceOf(String(seed));
        const requests: Buffer[] = [];
        for (let more = chance.pick([1, 1, 1, 2, 3]); more > 0; more--) requests.push(await request(chance));
        const bytes = Buffer.concat(requests);
        const what = JSON.stringify(bytes.toString("latin1").slice(0, 2_000));
        let answers: readonly Answer[] = [];
        let isTorn = false;
        const speak = async (): Promise<void> => {
          const { came, torn } = await converse(pieces(bytes, chance), chance.hit(0.1));
          await idle(what);
          answers = answersIn(came);
          isTorn ||= torn;
        };
        // Learnt first: whether anything of it is taken, which may change what it likes.
        await speak();
        for (const { status, body } of answers) {
          count.answers++;
          if (status === 200) {
            count.fine++;
            continue;
          }
          const { error } = (body ?? {}) as { readonly error?: { readonly code: string; readonly message: string } };
          if (body !== null && error === undefined) throw new Error(`${what}: ${status} without an error`);
          if (error === undefined) continue;
          expect(error.code, what).toMatch(/^[a-z][a-z0-9_]*$/);
          expect(error.message, what).not.toBe("");
          expect(status, what).toBeLessThan(504);
        }
        if (faults.length > 0) throw new Error(`${what}: a fault of our own`, { cause: faults.pop() });
        // Nor is it known what was taken when answers were lost.
        if (!isTorn && answers.every(({ status }) => status !== 200)) await arena.keeps(what, speak);
        const [after] = answersIn(
          await exchange(
            [Buffer.from("GET /api/v1/health HTTP/1.1\r\nHost: drover\r\nConnection: close\r\n\r\n")],
            false,
          ),
        );
        expect(after?.status, `health after ${what}`).toBe(200);
      }),
      budget(150),
    );
    expect(count.fine).toBeGreaterThan(0);
    expect(count.fine / count.answers).toBeLessThan(0.8);
  },
  testLimitMs,
);

test.each<[what: string, bytes: string, status: number, code: string]>([
  ["no HTTP at all", "\u0016\u0003\u0001hello\r\n\r\n", 400, "bad_request"],
  ["a head without an end", `GET / HTTP/1.1\r\nX: ${"a".repeat(100_000)}`, 431, "bad_request"],
  ["no Host", "GET /api/v1/health HTTP/1.1\r\n\r\n", 403, "bad_host"],
  ["a tunnel", "CONNECT a:1 HTTP/1.1\r\nHost: drover\r\n\r\n", 405, "bad_request"],
  ["an expectation", "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nExpect: tea\r\n\r\n", 400, "bad_request"],
  [
    "two lengths",
    "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    400,
    "bad_request",
  ],
])("%s is told why in a document", async (_what, bytes, status, code) => {
  const [answer] = answersIn(await exchange([Buffer.from(bytes, "latin1")], false));
  expect(answer).toMatchObject({ status, body: { error: { code } } });
});

test("of several requests that came at once none stays counted when the first one closes their connection", async () => {
  const refused = "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nContent-Length: 0\r\n\r\n";
  const [answer] = answersIn(await exchange([Buffer.from(refused.repeat(5))], false));
  expect(answer).toMatchObject({ status: 400, body: { error: { code: "not_json" } } });
  await idle("them");
});

const change = (limit: number): string => {
  const body = JSON.stringify({ resource: "provider:claude", limit });
  return `POST /api/v1/ops/limit.set HTTP/1.1\r\nHost: drover\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
};

test.each([
  ["an expectation", "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx"],
  ["no Host", "GET /api/v1/health HTTP/1.1\r\n\r\n"],
  ["no JSON", "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nContent-Length: 0\r\n\r\n"],
  ["the last one of its client", "GET /api/v1/health HTTP/1.1\r\nHost: drover\r\nConnection: close\r\n\r\n"],
])("what comes behind %s is not begun: nobody would be told what became of it", async (_what, first) => {
  await arena.keeps("requests behind the last answer", async () => {
    expect(answersIn(await exchange([Buffer.from(first + change(7) + change(8))], false))).toHaveLength(1);
  });
  await idle("them");
});

test("what is whole is answered, in order, before what is no request behind it is refused", async () => {
  const answers = answersIn(await exchange([Buffer.from(`${change(5)}${change(6)}no request\r\n\r\n`)], false));
  expect(answers).toMatchObject([{ body: { limit: 5 } }, { body: { limit: 6 } }, { status: 400 }]);
  await idle("them");
});

test("a client that has left before what stands in front of its tunnel is answered ends nothing but its connection", async () => {
  const connection = connect(socket);
  let left = (): void => undefined;
  held = new Promise((resolve) => (left = resolve));
  connection.write(`${change(5)}CONNECT a:1 HTTP/1.1\r\nHost: drover\r\n\r\n`);
  await until("the first one is at work", () => active === 1);
  connection.destroy();
  await new Promise((resolve) => connection.once("close", resolve));
  left();
  // An error that nobody listens for would end the process, and this test's run with it.
  await idle("it");
});

test("a client that leaves in the middle of its request is no fault of ours", async () => {
  await exchange(
    [
      Buffer.from(
        "POST /api/v1/ops/runs HTTP/1.1\r\nHost: drover\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
      ),
    ],
    true,
  );
  const [after] = answersIn(
    await exchange([Buffer.from("GET /api/v1/health HTTP/1.1\r\nHost: drover\r\nConnection: close\r\n\r\n")], false),
  );
  expect(after?.status).toBe(200);
  expect(faults).toEqual([]);
  await idle("them");
});
