/** Bytes to lines: cut anywhere, of any length, of any content, in bounded memory. */
import { makeInert } from "../inert.ts";
import type { Line } from "./adapter.ts";
import { fieldsOf } from "./event-fields.ts";
import { type Outline, type OutlineLimits, outline } from "./outline.ts";

/** `lineBytes`: longest line that is kept and parsed whole. */
export type LineLimits = { readonly lineBytes: number } & Pick<OutlineLimits, "nestedTextBytes" | "seal">;

/** A line, or what there is to say about the stream itself. */
export type Framed = { readonly kind: "line"; readonly line: Line } | { readonly kind: "note"; readonly text: string };

/** Cuts a stream into lines. Generators, so that who reads them may pause between two lines of one piece. */
export interface Framing {
  push(bytes: Uint8Array): Generator<Framed, void, undefined>;
  /** Bytes that nobody can read any more: the line that they stand in is left out. */
  skip(bytes: number): void;
  /** The program emptied its output and begins again. */
  restart(): Generator<Framed, void, undefined>;
  /** The stream is over: what stands behind the last line end is a line too. */
  end(): Generator<Framed, void, undefined>;
}

const NEWLINE = 0x0a;
const OPEN_OBJECT = 0x7b;
/** What is kept of an overlong line that is no event. */
const HEAD_BYTES = 4_096;
/** That many zeros in a row are a range that was given back to the disk, not output. */
const ZEROS = Buffer.alloc(512);
const REPLACEMENT = "\ufffd";
const REPLACEMENT_BYTES = Buffer.from(REPLACEMENT);
/** The same as JSON writes it, not behind a backslash that is itself written out. */
const ESCAPED_REPLACEMENT = /(?<!\\)(?:\\\\)*\\ufffd/i;
const wholeLines = new TextDecoder();

/** Begins to read a stream. */
export function frameLines(limits: LineLimits): Framing {
  let pending: Uint8Array[] = [];
  let pendingBytes = 0;
  /** The line that is being read is over the limit; its event when it looks like one. */
  let over: { readonly head: Uint8Array; readonly event: Outline | null } | null = null;
  /** The line's beginning was lost: what comes of it means nothing. */
  let maimed = false;
  let unframedSaid = false;
  let skippedBytes = 0;
  let blanks = 0;
  let zerosBefore = 0;
  const doubts = { sent: 0, saidSent: 0, broken: 0, saidBroken: 0 };

  const forget = (): void => {
    pending = [];
    pendingBytes = 0;
    over = null;
  };

  const note = (text: string): Framed => ({ kind: "note", text });

  /** More of the line that is being read. */
  function* add(bytes: Uint8Array): Generator<Framed, void, undefined> {
    if (bytes.length === 0 || maimed) return;
    pendingBytes += bytes.length;
    if (over !== null) {
      over.event?.push(bytes);
      return;
    }
    // The reader's buffer is used again.
    pending.push(Buffer.from(bytes));
    if (pendingBytes <= limits.lineBytes) return;
    const head = Buffer.concat(pending);
    pending = [];
    const start = objectStart(head);
    over = {
      head: head.subarray(0, Math.min(HEAD_BYTES, limits.lineBytes)),
      event: start < 0 ? null : outline({ ...limits, bytes: limits.lineBytes }),
    };
    if (over.event !== null) over.event.push(head.subarray(start));
    else if (!unframedSaid) {
      unframedSaid = true;
      yield note(`unframed output: more than ${limits.lineBytes} bytes without a line end that are no event`);
    }
  }

  /** The line is over. */
  function* finish(): Generator<Framed, void, undefined> {
    if (over !== null) {
      const { head, event } = over;
      const bytes = pendingBytes;
      forget();
      const found = event?.end() ?? null;
      if (event !== null && found === null && !unframedSaid) {
        unframedSaid = true;
        yield note(`unframed output: ${bytes} bytes in one line that are no event`);
      }
      yield note(`truncated: ${bytes} -> ${found === null ? head.length : limits.lineBytes}`);
      if (found !== null) yield { kind: "line", line: { text: JSON.stringify(found), event: found } };
      else yield* line(head, false);
      return;
    }
    const whole = pending.length === 1 ? (pending[0] ?? new Uint8Array(0)) : Buffer.concat(pending);
    forget();
    yield* line(whole, true);
  }

  function* line(bytes: Uint8Array, whole: boolean): Generator<Framed, void, undefined> {
    // A cut may divide a character: what is left of it goes.
    const decoded = whole ? wholeLines.decode(bytes) : new TextDecoder().decode(bytes, { stream: true });
    // Zeros at the edge of a range that was given back.
    const kept = decoded.replace(/^\0+/, "").replace(/\r$/, "");
    const text = whole ? kept : limits.seal(kept);
    if (text.trim() === "") {
      // Paragraphs are kept, a flood of empty lines is not.
      if (++blanks <= 2) yield { kind: "line", line: { text: "", event: null } };
      return;
    }
    blanks = 0;
    if (text.includes(REPLACEMENT) || ESCAPED_REPLACEMENT.test(text)) yield* doubt(text, bytes);
    yield { kind: "line", line: { text, event: eventIn(text) } };
  }

  /** Counts what cannot have been meant; says so when it first appears. Nothing is repaired. */
  function* doubt(text: string, bytes: Uint8Array): Generator<Framed, void, undefined> {
    const escapes = text.match(new RegExp(ESCAPED_REPLACEMENT, "gi"))?.length ?? 0;
    const shown = text.split(REPLACEMENT).length - 1;
    const sent = shown === 0 ? 0 : count(bytes, REPLACEMENT_BYTES);
    doubts.sent += sent + escapes;
    doubts.broken += Math.max(0, shown - sent);
    if (doubts.sent > 0 && doubts.saidSent === 0) yield* saySent();
    if (doubts.broken > 0 && doubts.saidBroken === 0) yield* sayBroken();
  }
  function* saySent(): Generator<Framed, void, undefined> {
    doubts.saidSent = doubts.sent;
    yield note(`warning: producer sent U+FFFD (${doubts.sent})`);
  }
  function* sayBroken(): Generator<Framed, void, undefined> {
    doubts.saidBroken = doubts.broken;
    yield note(`warning: bytes that are no UTF-8 (${doubts.broken})`);
  }

  const skip = (bytes: number): void => {
    forget();
    maimed = true;
    skippedBytes += bytes;
  };
  function* saySkipped(): Generator<Framed, void, undefined> {
    if (skippedBytes === 0) return;
    const bytes = skippedBytes;
    skippedBytes = 0;
    yield note(`${bytes} bytes of the log were given back to the disk before they were read`);
  }

  return {
    *push(bytes) {
      const find = (wanted: number | Uint8Array, from: number): number => {
        const found = Buffer.prototype.indexOf.call(bytes, wanted, from);
        return found < 0 ? bytes.length : found;
      };
      let at = 0;
      // A range may begin in one piece and go on in the next.
      const first = zerosFrom(bytes, 0);
      const isMore = first > 0 && zerosBefore + first >= ZEROS.length;
      zerosBefore = first === bytes.length ? zerosBefore + first : zerosAtEnd(bytes);
      let hole = isMore ? 0 : find(ZEROS, 0);
      while (at < bytes.length) {
        if (at === hole) {
          const run = zerosFrom(bytes, at);
          skip(run);
          at += run;
          hole = find(ZEROS, at);
          continue;
        }
        const end = Math.min(find(NEWLINE, at), hole);
        const piece = bytes.subarray(at, end);
        at = end;
        if (end < hole && pendingBytes === 0 && !maimed && piece.length <= limits.lineBytes) {
          // Nearly every line stands in one piece: it is not kept, so it is not copied.
          at++;
          yield* line(piece, true);
          continue;
        }
        yield* add(piece);
        if (end === hole) continue;
        at++;
        yield* saySkipped();
        if (!maimed) yield* finish();
        maimed = false;
      }
    },
    skip,
    *restart() {
      yield* saySkipped();
      forget();
      maimed = false;
      yield note("the program emptied this output");
    },
    *end() {
      yield* saySkipped();
      if (!maimed && pendingBytes > 0) yield* finish();
      forget();
      maimed = false;
      if (doubts.sent > doubts.saidSent) yield* saySent();
      if (doubts.broken > doubts.saidBroken) yield* sayBroken();
    },
  };
}

/** A line as an event, also between colour codes and behind a byte order mark. */
function eventIn(text: string): Line["event"] {
  if (!text.includes("{")) return null;
  for (const tried of text.includes("\u001b") ? [text, makeInert(text)] : [text]) {
    const start = tried.trimStart();
    if (!start.startsWith("{")) continue;
    try {
      return fieldsOf(JSON.parse(start));
    } catch {
      // Not JSON, or not with its colours.
    }
  }
  return null;
}

/** Where the object begins in a line that begins with one, behind marks and colour codes; -1 when it does not. */
function objectStart(head: Uint8Array): number {
  const start = new TextDecoder().decode(head.subarray(0, 256), { stream: true });
  return makeInert(start).trimStart().startsWith("{") ? head.indexOf(OPEN_OBJECT) : -1;
}

function zerosFrom(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length && bytes[at] === 0) at++;
  return at - from;
}

function zerosAtEnd(bytes: Uint8Array): number {
  let from = bytes.length;
  while (from > 0 && bytes[from - 1] === 0) from--;
  return bytes.length - from;
}

function count(bytes: Uint8Array, wanted: Uint8Array): number {
  let found = 0;
  for (let at = 0; ; found++) {
    at = Buffer.prototype.indexOf.call(bytes, wanted, at);
    if (at < 0) return found;
    at += wanted.length;
  }
}
