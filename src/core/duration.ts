import { AppError } from "./errors.ts";

const UNITS = [
  ["w", 604_800_000],
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
] as const;

const FORM = /^(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$/;

/** The same for JSON Schema: it wants at least one part. */
export const DURATION_PATTERN = "^(?=.)(\\d+w)?(\\d+d)?(\\d+h)?(\\d+m)?(\\d+s)?(\\d+ms)?$";

/**
 * Reads a duration as milliseconds: `500ms`, `90s`, `15m`, `2h`, `1d`, `1w`, or a sum in falling units (`1h30m`).
 * A day is 24 hours, a week 7 of them. Errors: AppError `bad_duration` for everything else, and for more than 2^53 - 1 ms.
 * @param path where the text stands in the input, for the error
 */
export function parseDuration(text: string, path?: string): number {
  const match = text === "" ? null : FORM.exec(text);
  let ms = 0;
  if (match !== null) {
    for (const [index, [, unitMs]] of UNITS.entries()) ms += Number(match[index + 1] ?? 0) * unitMs;
    if (Number.isSafeInteger(ms)) return ms;
  }
  throw new AppError(
    "invalid",
    "bad_duration",
    match === null ? `${JSON.stringify(text)} is not a duration` : `the duration ${JSON.stringify(text)} is too long`,
    {
      hint: "Write whole numbers with units, largest first: 500ms, 90s, 15m, 2h, 1d, 1w, 1h30m.",
      ...(path === undefined ? {} : { path }),
    },
  );
}

function parts(ms: number): [amount: number, unit: string][] {
  const found: [number, string][] = [];
  let rest = ms;
  for (const [unit, unitMs] of UNITS) {
    // Weeks only where nothing is left over: "30d" says more than "4w2d".
    if (unit === "w" && rest % unitMs !== 0) continue;
    const amount = Math.floor(rest / unitMs);
    if (amount > 0) found.push([amount, unit]);
    rest -= amount * unitMs;
  }
  return found;
}

/** The shortest text that `parseDuration` reads as this whole number of milliseconds: `1h30m`, `30d`, `0s`. */
export function formatDuration(ms: number): string {
  return (
    parts(ms)
      .map(([amount, unit]) => `${amount}${unit}`)
      .join("") || "0s"
  );
}

/**
 * A duration for people: its two largest units, cut, never rounded up (`2h 5m`, `3d`, `12s`, `40ms`); negative with a sign.
 * Seconds carry no milliseconds from ten on; below, one decimal (`2.5s`).
 */
export function describeDuration(ms: number): string {
  if (ms < 0) return `-${describeDuration(-ms)}`;
  if (!Number.isFinite(ms)) return "for ever";
  const whole = Math.floor(ms);
  if (whole >= 1_000 && whole < 10_000) return `${Math.floor(whole / 100) / 10}s`;
  const secondsOnly = whole >= 1_000 ? whole - (whole % 1_000) : whole;
  const [first, second] = parts(secondsOnly).filter(([, unit]) => unit !== "w");
  if (secondsOnly > 0 && secondsOnly % 604_800_000 === 0) return formatDuration(secondsOnly);
  if (first === undefined) return "0s";
  const neighbours = UNITS.findIndex(([unit]) => unit === second?.[1]) - UNITS.findIndex(([unit]) => unit === first[1]);
  return second !== undefined && neighbours === 1
    ? `${first[0]}${first[1]} ${second[0]}${second[1]}`
    : `${first[0]}${first[1]}`;
}
