import { AppError } from "./errors.ts";

const UNITS = [
  ["TiB", 2 ** 40],
  ["TB", 1e12],
  ["GiB", 2 ** 30],
  ["GB", 1e9],
  ["MiB", 2 ** 20],
  ["MB", 1e6],
  ["KiB", 2 ** 10],
  ["kB", 1e3],
  ["B", 1],
] as const;

const FACTORS = new Map<string, number>(UNITS.map(([unit, bytes]) => [unit.toLowerCase(), bytes]));

/**
 * Reads a size as bytes: `10MB` (powers of 1000), `1GiB` (powers of 1024), `4096` or `4096B`. Units in any case.
 * Errors: AppError `bad_size` for everything else, and for more than 2^53 - 1 bytes.
 * @param path where the text stands in the input, for the error
 */
export function parseSize(text: string, path?: string): number {
  const match = /^(\d+)([A-Za-z]*)$/.exec(text);
  const factor = FACTORS.get((match?.[2] || "B").toLowerCase());
  const bytes = Number(match?.[1]) * (factor ?? Number.NaN);
  if (Number.isSafeInteger(bytes)) return bytes;
  throw new AppError(
    "invalid",
    "bad_size",
    bytes > 0 ? `the size ${JSON.stringify(text)} is too large` : `${JSON.stringify(text)} is not a size`,
    {
      hint: "Write a whole number of bytes, or one with a unit: 4096, 64kB, 10MB, 1GB, 64KiB, 10MiB, 1GiB.",
      ...(path === undefined ? {} : { path }),
    },
  );
}

/** A text that `parseSize` reads as this whole number of bytes, in the largest unit that divides it: `64MiB`, `10MB`, `0B`. */
export function formatSize(bytes: number): string {
  const [unit, factor] = UNITS.find(([, each]) => bytes >= each && bytes % each === 0) ?? ["B", 1];
  return `${bytes / factor}${unit}`;
}

/** A size for people, in binary units with at most one decimal: `1.4 MiB`, `812 B`. */
export function describeSize(bytes: number): string {
  const [unit, factor] = UNITS.find(([name, each]) => name.includes("i") && bytes >= each) ?? ["B", 1];
  const amount = bytes / factor;
  return `${amount < 10 ? Math.floor(amount * 10) / 10 : Math.floor(amount)} ${unit}`;
}
