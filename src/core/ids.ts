/** The kinds of things that have ids; the id begins with the word. */
export type IdKind = "host" | "loop" | "run" | "step" | "att" | "acct" | "evt";

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"; // Crockford's base 32, lower case: sorts as it counts

/**
 * `<kind>_` and 26 characters: 48 bits of milliseconds, then 80 random bits (the layout of a ULID), so that ids sort by
 * time. Order within a millisecond is chance: what needs order has a number of its own.
 * @param at instant in milliseconds
 * @param random ten bytes
 */
export function makeId(kind: IdKind, at: number, random: Uint8Array): string {
  let time = "";
  let rest = Math.max(0, Math.trunc(at));
  for (let i = 0; i < 10; i++) {
    time = ALPHABET[rest % 32] + time;
    rest = Math.floor(rest / 32);
  }
  let chance = "";
  let bits = 0;
  let have = 0;
  for (const byte of random.subarray(0, 10)) {
    bits = ((bits << 8) | byte) & 0xffff;
    have += 8;
    while (have >= 5) {
      have -= 5;
      chance += ALPHABET[(bits >> have) & 31];
    }
  }
  return `${kind}_${time}${chance}`;
}

/** When an id was made, in milliseconds; null for what is no id. */
export function madeAt(id: string): number | null {
  const time = /^[a-z]+_([0-9a-hjkmnp-tv-z]{10})[0-9a-hjkmnp-tv-z]{16}$/.exec(id)?.[1];
  if (time === undefined) return null;
  let at = 0;
  for (const letter of time) at = at * 32 + ALPHABET.indexOf(letter);
  return at;
}

/** What tables print: enough to name a thing, short enough to type. */
export const shortId = (id: string): string => id.slice(-6);
