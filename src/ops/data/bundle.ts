/**
 * Bundles: what a store holds as lines of JSON. The first line says what it is, the last one proves that it is whole: the
 * number of lines before it, and the SHA-256 of their bytes. Lines in between are read one at a time, however many there are.
 */
import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { z } from "zod";
import { AppError } from "../../core/errors.ts";
import { loopName, runPolicy } from "../../core/loop.ts";
import type { PastRun } from "../../core/ports.ts";
import { attemptStatuses, failureClasses, finalStatuses, stepStatuses } from "../../core/run.ts";
import { accountName, providers, target } from "../../core/target.ts";
import type { Form } from "../declared/declared-form.ts";
import { isDeep } from "../fields.ts";
import { readAs } from "../schema.ts";

export const BUNDLE_VERSION = 1;

const id = (kind: string) => z.string().regex(new RegExp(`^${kind}_[0-9a-z]{26}$`), `no id of a ${kind}`);
const at = z.int().min(0);
const many = z.int().min(0);
const text = z.string();
const form = z.record(z.string(), z.json()) as unknown as z.ZodType<Form>;
const withheld = z.array(text);

const schedule = z.union([
  z.strictObject({ kind: z.literal("interval"), everyMs: at.min(1), anchorAt: z.int() }),
  z.strictObject({ kind: z.literal("cron"), expression: text, zone: text }),
  z.strictObject({ kind: z.literal("once"), at: z.int() }),
  z.strictObject({ kind: z.literal("dynamic"), firstAt: z.int() }),
]);

const slot = z.strictObject({
  at,
  untilAt: at,
  count: z.int().min(1),
  outcome: z.enum(["succeeded", "failed", "timed_out", "cancelled", "skipped", "missed", "coalesced"]),
  reason: text.nullable(),
  coalescedInto: at.nullable(),
  runId: id("run").nullable(),
  lateMs: many,
  schedule: schedule.nullable(),
});

const failure = z.enum(failureClasses);
const run = z.strictObject({
  id: id("run"),
  kind: z.enum(["command", "agent"]),
  originKind: z.enum(["slot", "ad_hoc", "person", "api", "run", "work_item", "retry"]),
  originId: text.nullable(),
  loopId: id("loop").nullable(),
  loopName: text.nullable(),
  slotAt: at.nullable(),
  parentRunId: id("run").nullable(),
  rootRunId: id("run"),
  depth: many,
  retryOf: id("run").nullable(),
  target,
  policy: runPolicy,
  status: z.enum(finalStatuses),
  reason: text.nullable(),
  priority: z.int(),
  queuedAt: at,
  cancelRequestedAt: at.nullable(),
  cancelBy: text.nullable(),
  cancelReason: text.nullable(),
  exitStatus: z.int().nullable(),
  output: text.nullable(),
  error: z.strictObject({ class: failure, message: text }).nullable(),
  startedAt: at.nullable(),
  finishedAt: at,
  createdAt: at,
});
const step = z.strictObject({
  id: id("step"),
  key: text,
  kind: text,
  status: z.enum(stepStatuses),
  reason: text.nullable(),
  token: many,
  triesCounted: many,
  maxAttempts: many,
  idleEnds: many,
  attemptsMade: many,
  output: text.nullable(),
  startedAt: at.nullable(),
  finishedAt: at.nullable(),
});
const attempt = z.strictObject({
  id: id("att"),
  stepId: id("step"),
  number: many,
  counted: z.boolean().nullable(),
  purpose: z.enum(["try", "turn", "repair", "resume"]),
  token: many,
  status: z.enum(attemptStatuses),
  class: failure.nullable(),
  hostId: text,
  incarnation: many,
  accountId: text.nullable(),
  sessionRef: text.nullable(),
  exitStatus: z.int().nullable(),
  signal: z.int().nullable(),
  message: text.nullable(),
  tail: text.nullable(),
  stdoutBytes: many,
  stderrBytes: many,
  endedBy: z.enum(["self", "timeout", "idle", "exit_timer", "cancel", "stop", "fence"]).nullable(),
  adopted: z.boolean(),
  reaped: many,
  proof: text.nullable(),
  usageTotal: text.nullable(),
  agentEnd: text.nullable(),
  startedAt: at.nullable(),
  finishedAt: at.nullable(),
});
const event = z.strictObject({
  number: z.int().min(1),
  type: text,
  token: many.nullable(),
  data: z.record(z.string(), z.json()),
  at,
});

const keysOf = (shape: z.ZodObject): readonly string[] => Object.keys(shape.shape);
const pick = (of: object, keys: readonly string[]): object =>
  Object.fromEntries(keys.map((key) => [key, (of as { readonly [key: string]: unknown })[key]]));
const [runKeys, stepKeys, attemptKeys, eventKeys] = [run, step, attempt, event].map(keysOf) as [
  string[],
  string[],
  string[],
  string[],
];

/** The line of a finished run: what it did, not where it lay on its host. */
export const runLine = (past: PastRun): object => ({
  kind: "run",
  run: pick(past.run, runKeys),
  steps: past.steps.map((one) => pick(one, stepKeys)),
  attempts: past.attempts.map((one) => pick(one, attemptKeys)),
  events: past.events.map((one) => pick(one, eventKeys)),
});

export const pastSlots = z.strictObject({ kind: z.literal("slots"), loopId: id("loop"), items: z.array(slot) });
export const pastRun = z.strictObject({
  kind: z.literal("run"),
  run,
  steps: z.array(step),
  attempts: z.array(attempt),
  events: z.array(event),
});
export const definition = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("account"), provider: z.enum(providers), name: accountName, form, withheld }),
  z.strictObject({ kind: z.literal("limit"), resource: text.min(1), limit: many }),
  z.strictObject({ kind: z.literal("loop"), id: id("loop"), name: loopName, status: text, form, withheld }),
]);
const header = z.strictObject({
  kind: z.literal("bundle"),
  version: z.literal(BUNDLE_VERSION),
  madeAt: text,
  madeBy: text,
  history: z.boolean(),
});
const end = z.strictObject({ kind: z.literal("end"), lines: many, sha256: text });
const content = z.discriminatedUnion("kind", [...definition.options, pastSlots, pastRun]);

export type Definition = z.infer<typeof definition>;
export type BundleLine = z.infer<typeof content>;

// --- Writing ----------------------------------------------------------------------------------------------------------------

/** The lines of a bundle out of its content. */
export async function* writeBundle(
  about: { readonly madeAt: string; readonly madeBy: string; readonly history: boolean },
  lines: AsyncIterable<object>,
): AsyncGenerator<string> {
  const hash = createHash("sha256");
  let count = 0;
  const put = (value: object): string => {
    const line = `${JSON.stringify(value)}\n`;
    hash.update(line);
    count++;
    return line;
  };
  yield put({ kind: "bundle", version: BUNDLE_VERSION, ...about });
  for await (const line of lines) yield put(line);
  yield `${JSON.stringify({ kind: "end", lines: count, sha256: hash.digest("hex") })}\n`;
}

// --- Reading ----------------------------------------------------------------------------------------------------------------

const refuse = (code: string, path: string, message: string, hint: string): AppError =>
  new AppError("invalid", code, message, { path, hint });

const ANOTHER = "Make it again with `drover export`, or copy it whole.";

const HALF = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

/** A character that no store keeps as it is. */
function oddText(value: unknown): boolean {
  if (typeof value === "string") return value.includes("\0") || HALF.test(value);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, one]) => oddText(key) || oddText(one));
}

/** Raw lines with their number; a last one without a line end too. Errors: AppError invalid `bundle_line_too_long`. */
async function* rawLines(
  file: string,
  maxBytes: number,
): AsyncGenerator<{ readonly number: number; readonly bytes: Buffer; readonly ended: boolean }> {
  let rest: Buffer[] = [];
  let size = 0;
  let number = 0;
  const tooLong = (): AppError =>
    refuse(
      "bundle_line_too_long",
      `${file}:${number + 1}`,
      `line ${number + 1} of ${file} has more than ${maxBytes} bytes`,
      "Raise limits.bundleLineBytes if it is meant.",
    );
  for await (const chunk of createReadStream(file)) {
    let piece = chunk as Buffer;
    for (let cut = piece.indexOf(10); cut !== -1; cut = piece.indexOf(10)) {
      if (size + cut > maxBytes) throw tooLong();
      const bytes = rest.length === 0 ? piece.subarray(0, cut) : Buffer.concat([...rest, piece.subarray(0, cut)]);
      yield { number: ++number, bytes, ended: true };
      rest = [];
      size = 0;
      piece = piece.subarray(cut + 1);
    }
    size += piece.length;
    if (size > maxBytes) throw tooLong();
    if (piece.length > 0) rest.push(piece);
  }
  if (rest.length > 0) yield { number: ++number, bytes: Buffer.concat(rest), ended: false };
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function parsed(file: string, number: number, bytes: Buffer): { readonly [key: string]: unknown } {
  const place = `${file}:${number}`;
  const none = (why: string) =>
    number === 1
      ? refuse("not_a_bundle", place, `${file} is no bundle: ${why}`, "`drover export` makes one.")
      : refuse("bundle_damaged", place, `line ${number} of ${file} ${why}`, ANOTHER);
  try {
    const value: unknown = JSON.parse(utf8.decode(bytes));
    if (typeof value === "object" && value !== null && !Array.isArray(value)) {
      if (!isDeep(value)) return value as { [key: string]: unknown };
      throw none("is nested too deeply");
    }
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw none("its first line is no JSON".replace("its first line", number === 1 ? "its first line" : "it"));
  }
  throw none("is no object");
}

function checked<T>(shape: z.ZodType<T>, value: unknown, file: string, number: number): T {
  const place = `${file}:${number}`;
  if (oddText(value))
    throw refuse("bundle_invalid", place, `line ${number} of ${file} holds a NUL byte or half a character`, ANOTHER);
  const { data, wrong } = readAs(shape, value);
  if (wrong === null) return data;
  const where = wrong.path.map(String).join(".");
  throw refuse(
    "bundle_invalid",
    `${place}${where === "" ? "" : ` ${where}`}`,
    `line ${number} of ${file}: ${where === "" ? "" : `${where}: `}${wrong.message}`,
    ANOTHER,
  );
}

/**
 * The content of a bundle, line by line. Only after the last one it is known to be whole: read it to its end before anything
 * is done with it. Errors: AppError invalid `not_a_bundle`, `bundle_cut`, `bundle_changed`, `bundle_damaged`,
 * `bundle_invalid`, conflict `newer_bundle`, not_found `file_not_found`.
 */
export async function* readBundle(file: string, maxLineBytes: number): AsyncGenerator<BundleLine> {
  const hash: Hash = createHash("sha256");
  let count = 0;
  let isOver = false;
  try {
    for await (const { number, bytes, ended } of rawLines(file, maxLineBytes)) {
      if (isOver) throw refuse("bundle_changed", `${file}:${number}`, `${file} goes on after its last line`, ANOTHER);
      const cut = refuse("bundle_cut", file, `${file} is cut: it ends in line ${number}`, ANOTHER);
      if (!ended) throw number === 1 ? parsed(file, 1, bytes) && cut : cut;
      const value = parsed(file, number, bytes);
      if (number === 1) checkHeader(file, value);
      else if (value["kind"] === "end") {
        const last = checked(end, value, file, number);
        if (last.lines !== count || last.sha256 !== hash.digest("hex"))
          throw refuse(
            "bundle_changed",
            file,
            `${file} is not as it was made: its content has another checksum than its last line says`,
            ANOTHER,
          );
        isOver = true;
        continue;
      } else yield checked(content, value, file, number);
      hash.update(bytes).update("\n");
      count++;
    }
  } catch (error) {
    throw fileFault(error, file);
  }
  if (!isOver)
    throw count === 0
      ? refuse("not_a_bundle", file, `${file} is empty`, "`drover export` makes a bundle.")
      : refuse("bundle_cut", file, `${file} is cut: its last line is missing`, ANOTHER);
}

function checkHeader(file: string, value: { readonly [key: string]: unknown }): void {
  if (value["kind"] !== "bundle" || typeof value["version"] !== "number")
    throw refuse("not_a_bundle", `${file}:1`, `${file} is no bundle`, "`drover export` makes one.");
  if (value["version"] > BUNDLE_VERSION)
    throw new AppError(
      "conflict",
      "newer_bundle",
      `${file} is a bundle of version ${value["version"]}, this program knows ${BUNDLE_VERSION}`,
      {
        path: file,
        hint: "Use the newer drover that made it; nothing was changed.",
      },
    );
  checked(header, value, file, 1);
}

function fileFault(error: unknown, file: string): unknown {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (error instanceof AppError || !/^E[A-Z]+$/.test(code)) return error;
  return code === "ENOENT"
    ? new AppError("not_found", "file_not_found", `there is no file ${file}`, {
        path: file,
        hint: "`drover export FILE` makes one.",
      })
    : refuse("file_unreadable", file, `${file} cannot be read: ${code}`, "Name a file that this user may read.");
}
