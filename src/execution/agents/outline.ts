/**
 * Reads one JSON object of any length in bounded memory: long texts are cut, deep and numerous members left out, and what
 * stands directly in the object is kept wherever it stands. So the closing event of an agent is understood although
 * its line is too long to be parsed whole.
 */

/** Bounds of an outline, in bytes of JSON. */
export interface OutlineLimits {
  /** About all that is kept. */
  readonly bytes: number;
  /** What is kept of a text within a member. */
  readonly nestedTextBytes: number;
  /** Makes the beginning of a text that was cut fit to be kept: half of a secret could stand at its end. */
  seal(text: string): string;
}

export interface Outline {
  push(bytes: Uint8Array): void;
  /** The object; null when what was read is no whole object. */
  end(): Readonly<Record<string, unknown>> | null;
}

/** Scalars that stand directly in the object are kept up to this length even when nothing else is any more. */
const ALWAYS_BYTES = 1_024;
/** So many of them. */
const MOST_MEMBERS = 1_024;
/** Deeper than this nothing is kept, and deeper than `MOST_DEPTH` is no event. */
const KEPT_DEPTH = 32;
const MOST_DEPTH = 10_000;
const KEY_BYTES = 256;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const COLON = 0x3a;
const COMMA = 0x2c;

type State =
  | "value"
  | "first_value"
  | "key"
  | "first_key"
  | "colon"
  | "after"
  | "text"
  | "key_text"
  | "literal"
  | "done"
  | "broken";

interface Level {
  /** null: left out, with all that is in it. */
  readonly kept: Record<string, unknown> | unknown[] | null;
  readonly isArray: boolean;
  key: string;
}

/** Begins to read an object. */
export function outline(limits: OutlineLimits): Outline {
  let state: State = "value";
  const levels: Level[] = [];
  let root: Record<string, unknown> | null = null;
  let leftBytes = limits.bytes;
  let memberBytes = 0;
  let members = 0;
  // What is kept of the text or literal that is being read.
  let parts: Uint8Array[] = [];
  let keptBytes = 0;
  let mayKeepBytes = 0;
  let isCut = false;
  let escaped = false;

  const level = (): Level | undefined => levels.at(-1);

  /** How much may be kept of a scalar at this place. */
  const allowance = (): number => {
    const here = level();
    if (here === undefined || here.kept === null) return 0;
    if (levels.length === 1) return members >= MOST_MEMBERS ? 0 : Math.max(ALWAYS_BYTES, Math.floor(leftBytes / 2));
    return Math.max(0, Math.min(limits.nestedTextBytes, memberBytes, leftBytes));
  };

  const put = (value: unknown, bytes: number): void => {
    const here = level();
    if (here === undefined || here.kept === null) return;
    if (levels.length === 1) members++;
    else if (bytes + here.key.length + 4 > memberBytes) {
      // An empty place would look like data.
      memberBytes = 0;
      return;
    } else memberBytes -= bytes + here.key.length + 4;
    leftBytes -= bytes + here.key.length + 4;
    if (Array.isArray(here.kept)) here.kept.push(value);
    else if (here.key !== "__proto__") here.kept[here.key] = value;
  };

  const open = (isArray: boolean): void => {
    if (levels.length >= MOST_DEPTH) {
      state = "broken";
      return;
    }
    if (levels.length === 0) {
      if (isArray) {
        state = "broken";
        return;
      }
      root = {};
      levels.push({ kept: root, isArray, key: "" });
    } else {
      // Each member of the object has its own share, so that one that is large starves no other.
      if (levels.length === 1) memberBytes = Math.min(Math.floor(limits.bytes / 8), Math.max(0, leftBytes));
      const parent = level();
      const keep = parent?.kept != null && levels.length < KEPT_DEPTH && memberBytes > 2 && members < MOST_MEMBERS;
      const kept = keep ? (isArray ? [] : {}) : null;
      if (kept !== null) put(kept, 2);
      levels.push({ kept, isArray, key: "" });
    }
    state = isArray ? "first_value" : "first_key";
  };

  const close = (isArray: boolean): void => {
    const here = levels.pop();
    state = here?.isArray !== isArray ? "broken" : levels.length === 0 ? "done" : "after";
  };

  const begin = (next: "text" | "key_text" | "literal", mayKeep: number): void => {
    state = next;
    parts = [];
    keptBytes = 0;
    mayKeepBytes = mayKeep;
    isCut = false;
    escaped = false;
  };

  const keep = (bytes: Uint8Array): void => {
    const room = mayKeepBytes - keptBytes;
    if (bytes.length > room) isCut = true;
    if (room <= 0 || bytes.length === 0) return;
    parts.push(Uint8Array.prototype.slice.call(bytes, 0, room));
    keptBytes += Math.min(room, bytes.length);
  };

  const endText = (): void => {
    const kept = unescape(Buffer.concat(parts));
    const text = isCut ? limits.seal(kept) : kept;
    if (state === "key_text") {
      const here = level();
      if (here !== undefined) here.key = text;
      state = "colon";
      return;
    }
    if (mayKeepBytes > 0) put(text, keptBytes + 2);
    state = "after";
  };

  const endLiteral = (): void => {
    state = "after";
    if (mayKeepBytes === 0) return;
    try {
      put(JSON.parse(Buffer.concat(parts).toString("latin1")) as unknown, keptBytes);
    } catch {
      state = "broken"; // neither a number nor a word of JSON
    }
  };

  const step = (byte: number): void => {
    switch (state) {
      case "value":
      case "first_value":
        if (byte === CLOSE_ARRAY && state === "first_value") close(true);
        else if (byte === OPEN_OBJECT) open(false);
        else if (levels.length === 0) state = "broken";
        else if (byte === OPEN_ARRAY) open(true);
        else if (byte === QUOTE) begin("text", allowance());
        else {
          begin("literal", allowance() > 0 ? 64 : 0);
          keep(Uint8Array.of(byte));
        }
        return;
      case "key":
      case "first_key":
        if (byte === QUOTE) begin("key_text", KEY_BYTES);
        else if (byte === CLOSE_OBJECT && state === "first_key") close(false);
        else state = "broken";
        return;
      case "colon":
        state = byte === COLON ? "value" : "broken";
        return;
      case "after":
        if (byte === COMMA) state = level()?.isArray === true ? "value" : "key";
        else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) close(byte === CLOSE_ARRAY);
        else state = "broken";
        return;
      default:
        state = "broken"; // something behind the object
    }
  };

  return {
    push(bytes) {
      let at = 0;
      while (at < bytes.length && state !== "broken") {
        if (state === "text" || state === "key_text") {
          const from = at;
          while (at < bytes.length) {
            const byte = bytes[at];
            if (escaped) escaped = false;
            else if (byte === BACKSLASH) escaped = true;
            else if (byte === QUOTE) break;
            at++;
          }
          keep(bytes.subarray(from, at));
          if (at < bytes.length) {
            at++;
            endText();
          }
          continue;
        }
        const byte = bytes[at] ?? 0;
        if (state === "literal") {
          if (isSpace(byte) || byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) endLiteral();
          else {
            keep(Uint8Array.of(byte));
            at++;
          }
          continue;
        }
        if (!isSpace(byte)) step(byte);
        at++;
      }
    },
    end: () => (state === "done" ? root : null),
  };
}

const isSpace = (byte: number): boolean => byte === 0x20 || byte === 0x09 || byte === 0x0d || byte === 0x0a;

/** The text that stands in a JSON string which may have been cut anywhere. */
function unescape(bytes: Uint8Array): string {
  // Drops an unfinished character at the end.
  const raw = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });
  for (const end of [raw.length, raw.lastIndexOf("\\")]) {
    if (end < 0) continue;
    try {
      return JSON.parse(`"${raw.slice(0, end)}"`) as string;
    } catch {
      // Cut within an escape: the second try leaves that out.
    }
  }
  // Controls that JSON forbids, or an escape that it does not know: as it stands.
  return raw;
}
