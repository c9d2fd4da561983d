/** Characters that act on a terminal or a page instead of showing something, by code point. */
const ESC = "\u001b";
const BEL = "\u0007";
const CSI = "\u009b";
const ST = "\u009c";
/** Introducers of a string of their own: OSC, DCS, SOS, PM, APC, in both spellings. */
const STRING = `(?:${ESC}[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])`;
const PAYLOAD = `[^\n${BEL}${ESC}${ST}]{0,4096}`;

/** A whole control sequence. Strings without an end in their line are none: they would hide the rest of an output. */
const SEQUENCES = new RegExp(
  `(?:${ESC}\\[|${CSI})[0-?]{0,256}[ -/]{0,16}[@-~]|${STRING}${PAYLOAD}(?:${BEL}|${ESC}\\\\|${ST})|${ESC}[ -/]{0,16}[0-OQ-WYZ\`-~]|\r\n`,
  "g",
);
/** What may still become one with the next characters. */
const UNFINISHED = new RegExp(
  `(?:(?:${ESC}\\[|${CSI})[0-?]{0,256}[ -/]{0,16}|${STRING}${PAYLOAD}${ESC}?|${ESC}[ -/]{0,16}|\r)$`,
);
/** C0 but tab and newline, DEL, C1, and the marks that turn the direction of writing. */
const CONTROLS = new RegExp(
  "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]",
  "g",
);

/** Text in, inert text out; holds back the beginning of a control sequence until its end or `end()`. */
export interface InertStream {
  push(text: string): string;
  end(): string;
}

/**
 * Makes text inert: control sequences go as a whole, single controls go alone, a carriage return (which would write over
 * what stands there) becomes a new line. Newlines and tabs stay. Nothing printable is lost but the inside of sequences.
 */
export function inert(): InertStream {
  let held = "";
  const clean = (text: string): string =>
    text
      .replace(SEQUENCES, (found) => (found === "\r\n" ? "\n" : ""))
      .replaceAll("\r", "\n")
      .replace(CONTROLS, "");
  return {
    push(text) {
      const all = held + text;
      const open = UNFINISHED.exec(all);
      held = open === null ? "" : open[0];
      return clean(open === null ? all : all.slice(0, open.index));
    },
    end() {
      const rest = held;
      held = "";
      return clean(rest);
    },
  };
}

/** A whole text made inert. */
export function makeInert(text: string): string {
  const stream = inert();
  return stream.push(text) + stream.end();
}
