/** Secrets, wherever a cut falls: no part of one is in anything that is shown or stored of what a process said. */
import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { commandOf } from "../../test/drafts.ts";
import { NOW, targetOf } from "../../test/agents/replay.ts";
import { AppError } from "../core/errors.ts";
import { defaultLimits } from "../core/limits.ts";
import type { Provider } from "../core/target.ts";
import { openAgents } from "./agents/open-agents.ts";
import { followTranscript } from "./agents/transcript.ts";
import { openFiles } from "./files.ts";
import { makeInert } from "./inert.ts";
import { followLog, readLog } from "./logs.ts";
import { fingerprint } from "./scrub.ts";
import { censored, censorOf, keepFingerprints } from "./worktrees/secrets-of-tree.ts";

const FOLDER = "attempt-1.1";
let runs: string;
let path: string;
beforeEach(() => {
  runs = mkdtempSync(join(tmpdir(), "drover-redaction-"));
  path = join(runs, FOLDER);
});
afterEach(() => rmSync(runs, { recursive: true, force: true }));

/** An attempt's folder that knows these secrets. */
function begin(...secrets: readonly string[]): void {
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { mode: 0o700 });
  writeFileSync(join(path, "scrub"), JSON.stringify(fingerprint(secrets)));
}

/** Nobody says these by chance: no part of them is a part of what else is said. */
const letters = fc.string({ unit: fc.constantFrom(..."GHJKPQVWXZ"), minLength: 20, maxLength: 60 });
const special = fc.constantFrom('"', "\\", "/", "é", "😀", "'", "+", "=", "\t");
const line = fc.tuple(letters, fc.array(fc.tuple(special, fc.nat(60)), { maxLength: 3 })).map(([text, specials]) =>
  specials.reduce((made, [one, at]) => {
    const characters = [...made];
    characters.splice(at % (characters.length + 1), 0, one);
    return characters.join("");
  }, text),
);
const secret = fc.oneof(
  { arbitrary: line, weight: 4 },
  { arbitrary: fc.array(line, { minLength: 2, maxLength: 3 }).map((lines) => lines.join("\n")), weight: 1 },
);

/** So much of a secret is part of it. */
const PART = 8;

/** Fails when a part of a secret, or of what it was written as, is in a text. */
function holdsNone(what: string, text: string, parts: readonly string[]): void {
  for (const part of parts)
    for (let at = 0; at + PART <= part.length; at++) {
      const piece = part.slice(at, at + PART);
      // What no secret can be told from: signs that stand for others.
      if (!/[GHJKPQVWXZ]{4}/.test(piece)) continue;
      if (text.includes(piece))
        throw new Error(
          `${what}: ${JSON.stringify(piece)} of ${JSON.stringify(part)} in ${JSON.stringify(text.slice(0, 2_000))}`,
        );
    }
}

/** How programs write a text into a JSON string. */
const ENCODERS: { readonly [who: string]: (text: string) => string } = {
  javascript: (text) => JSON.stringify(text),
  php: (text) => JSON.stringify(text).replaceAll("/", "\\/"),
  python: (text) =>
    JSON.stringify(text).replace(/[\u007f-\uffff]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`),
  java: (text) =>
    JSON.stringify(text).replace(
      /[\u007f-\uffff]/g,
      (one) => `\\u${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`,
    ),
};
const encoder = fc.constantFrom(...Object.keys(ENCODERS));
const encode = (who: string, text: string): string => ENCODERS[who]?.(text) ?? "";
const filler = fc.string({ unit: fc.constantFrom("a", "b", " ", "\n", "é", "."), maxLength: 30 });
/** Where a stream is cut, as sizes of its pieces. */
const pieces = fc.array(fc.integer({ min: 1, max: 200 }), { minLength: 1, maxLength: 20 });

function* cut(bytes: Uint8Array, sizes: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, nth = 0; at < bytes.length; nth++) {
    const size = sizes[nth % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

describe("B-122 no part of a secret", () => {
  test("is in the output that a process hands over, whoever wrote its JSON", async () => {
    const files = openFiles({ runsFolder: runs, environment: {} });
    await fc.assert(
      fc.asyncProperty(secret, filler, encoder, fc.nat(3), async (value, around, who, place) => {
        begin(value);
        const said = encode(who, `${around}${value}${around}`);
        const inside = encode(who, `{"deep": ${encode(who, value)}}`);
        const document = [`{"a": ${said}}`, `{${said}: 1}`, `[{"b": [1, ${said}]}, ${said}]`, `{"text": ${inside}}`][
          place
        ];
        writeFileSync(join(path, "output"), document ?? "");
        const output = await files.output(FOLDER);
        expect(output).toContain("[secret]");
        const texts: string[] = [];
        // As somebody reads it who looks for texts in it, and for JSON in those.
        const read = (json: string): void =>
          void JSON.parse(json, function (this: unknown, key: string, one: unknown) {
            for (const text of [key, ...(typeof one === "string" ? [one] : [])]) {
              texts.push(text);
              if (text.startsWith("{")) read(text);
            }
            return one;
          });
        read(output ?? "");
        holdsNone(who, `${output} ${texts.join("\n")}`, [value, ...value.split("\n")]);
      }),
      { numRuns: 150 },
    );
  });

  test("is in a log, read in any way while it grows in any pieces", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(secret, encoder), { minLength: 1, maxLength: 3 }),
        fc.array(filler, { minLength: 1, maxLength: 4 }),
        pieces,
        fc.integer({ min: 8, max: 120 }),
        async (values, fillers, sizes, page) => {
          begin(...values.map(([value]) => value));
          const parts = values.flatMap(([value, who]) => [
            value,
            ...value.split("\n"),
            encode(who, value).slice(1, -1),
            encode(who, encode(who, value)),
          ]);
          const bytes = Buffer.from(
            parts
              .map((part, nth) => `${fillers[nth % fillers.length]} ${part} ${fillers[(nth + 1) % fillers.length]}\n`)
              .join(""),
          );
          writeFileSync(join(path, "out"), "");
          const ended = new AbortController();
          const follow = async (raw: boolean): Promise<string> => {
            let text = "";
            for await (const piece of followLog(path, "stdout", { raw, everyMs: 1, ended: ended.signal }))
              text += piece.text;
            return text;
          };
          const followed = [follow(false), follow(true)];
          const shown: string[] = [];
          for (const piece of cut(
            bytes,
            sizes.map((size) => size + Math.ceil(bytes.length / 12)),
          )) {
            appendFileSync(join(path, "out"), piece);
            shown.push((await readLog(path, "stdout", { raw: false, tailBytes: page, isLive: true })).text);
          }
          for (let from = 0, atEnd = false; !atEnd; ) {
            const next = await readLog(path, "stdout", { raw: true, from, maxBytes: page });
            shown.push(next.text);
            ({ next: from, atEnd } = next);
          }
          for (let tailBytes = 1; tailBytes < Math.min(bytes.length, 150); tailBytes += 7)
            shown.push((await readLog(path, "stdout", { raw: false, tailBytes })).text);
          ended.abort();
          for (const text of [...shown, ...(await Promise.all(followed))]) holdsNone("a log", text, parts);
        },
      ),
      { numRuns: 25 },
    );
  });

  test("is in a transcript, a verdict or a reading of an agent, in whatever pieces it comes", async () => {
    const event: { readonly [P in Provider]?: (text: string) => string } = {
      claude: (text) =>
        `{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":${text}},{"type":"tool_use","id":${text},"name":${text},"input":{"command":${text}}}]}}\n{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":${text}}]}}\n`,
      codex: (text) =>
        `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":${text}}}\n{"type":"item.completed","item":{"id":"2","type":"command_execution","command":${text},"aggregated_output":${text},"exit_code":1,"status":"failed"}}\n`,
      custom: (text) => `${text}\n`,
    };
    const end: { readonly [P in Provider]?: (text: string) => string } = {
      claude: (text) =>
        `{"type":"result","subtype":"error_during_execution","is_error":true,"result":${text},"session_id":${text},"errors":[${text}]}\n`,
      codex: (text) => `{"type":"turn.failed","error":{"message":${text}}}\n`,
      custom: (text) => `${text}\n`,
    };
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom<Provider>("claude", "codex", "custom"),
        secret,
        encoder,
        // In front of it, so that the cuts of entries, names, messages, lines and nested texts fall into it.
        fc.tuple(fc.constantFrom(0, 256, 1_024, 8_192, 4_096, 16_384, 500), fc.nat(70)),
        fc.constantFrom(0, 400, 30_000, 300_000),
        pieces,
        async (provider, value, who, [limit, back], behind, sizes) => {
          begin(value);
          const agents = openAgents({
            runsFolder: runs,
            limits: defaultLimits,
            clock: { now: () => NOW },
            log: () => undefined,
          });
          const target = targetOf(provider);
          const text = `${"x".repeat(Math.max(0, limit - back))}${value} after${" y".repeat(behind / 2)}`;
          const said = encode(who, text);
          const bytes = Buffer.from(`${event[provider]?.(said)}${end[provider]?.(said)}`);
          const shown: string[] = [];
          const step = Math.ceil(bytes.length / 12);
          for (const piece of cut(
            bytes,
            sizes.map((size) => size + step),
          )) {
            appendFileSync(join(path, "out"), piece);
            appendFileSync(join(path, "err"), piece);
            shown.push(JSON.stringify(await agents.read(FOLDER, target)));
          }
          const verdict = await agents.conclude(FOLDER, target, 1, NOW);
          for await (const entry of followTranscript(path, { ended: AbortSignal.abort() }))
            shown.push(...Object.values(entry).map(String));
          shown.push(...Object.values(verdict).map(String), readFileSync(join(path, "transcript"), "utf8"));
          holdsNone(provider, shown.join("\n"), [value, ...value.split("\n")]);
        },
      ),
      { numRuns: 25 },
    );
  });

  test("is in what is told of a check that failed, however much it printed and wherever that is cut", async () => {
    const files = openFiles({ runsFolder: runs, environment: {} });
    const value = "GHJKPQVWXZGHZXWVQPKJ";
    for (const width of [0, 1_000, 1_010, 1_020, 1_024, 2_060, 3_000]) {
      begin(value);
      const printed = join(runs, "printed");
      writeFileSync(printed, `begin ${value.slice(0, 9)}\u001b[1m${value.slice(9)} ${value}${"y".repeat(width)}`);
      for (const to of ["", ">&2"]) {
        const check = commandOf(["true"], { cwd: runs, expect: [`cmd:cat printed ${to}; exit 1`] });
        const said = await files.unmet(FOLDER, check, null);
        expect(said).toContain(width < 1_000 ? "[secret]" : "yyyy");
        holdsNone("a check", said ?? "", [value]);
        expect(said).toBe(makeInert(said ?? ""));
      }
    }
  });

  test("is in the words, the hint or the place of what is told of a tree", () => {
    const value = "GHJKPQVWXZGHZXWVQPKJ";
    begin(value);
    const git = join(runs, "git");
    execFileSync("mkdir", [git]);
    keepFingerprints(git, path);
    const censor = censorOf(git);
    for (const fault of [
      new AppError("invalid", "workspace", `no ${value}`, { hint: `see ${value}`, path: `/t/${value}` }),
      new AppError("invalid", "workspace", "no", { hint: `see ${value}` }),
      new AppError("invalid", "workspace", "no", { path: `/t/${value}` }),
    ]) {
      const { message, hint, path: place } = censored(fault, censor) as AppError;
      holdsNone("an error", `${message} ${hint} ${place}`, [value]);
    }
  });
});
