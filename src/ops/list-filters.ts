/** Filters that several lists share, checked alike: labels, and times that may be said as how far back. */
import { parseDuration } from "../core/duration.ts";
import { AppError } from "../core/errors.ts";
import { LABEL_RULE, labelPattern } from "../core/label.ts";
import type { Instant } from "../core/ports.ts";
import type { StoreContext } from "./operation.ts";
import { badInput, type Field, text } from "./fields.ts";

/** Only those with a label. */
export function labelField(about: string): Field<string | undefined> {
  const plain = text(about, { placeholder: "K" });
  const label = (given: string, path: string): string => {
    const lower = given.trim().toLowerCase();
    if (!labelPattern.test(lower))
      throw badInput(path, `${path} cannot be ${JSON.stringify(given)}`, `${LABEL_RULE}.`, "bad_label");
    return lower;
  };
  return {
    ...plain,
    read: (given, path, reading, before) => label(plain.read(given, path, reading, before) as string, path),
    check: (value, path) => {
      const checked = plain.check(value, path);
      return checked === undefined ? undefined : label(checked, path);
    },
  };
}

/** How an instant may be given to `--since` and `--until`. */
export const timeField = (about: string): Field<string | undefined> =>
  text(`${about}: 2h for two hours ago, or a time`, { placeholder: "T" });

/** The host's zone is asked for only where a time needs it: to find it costs a command half as much as all the rest. */
type Around = Pick<StoreContext, "clock" | "hostZone">;

/** A duration back from now, or a time; null where none is given. Errors: AppError invalid `bad_time`. */
async function instantOf(
  given: string | undefined,
  path: string,
  now: Instant,
  around: Around,
): Promise<Instant | null> {
  if (given === undefined) return null;
  try {
    return now - parseDuration(given, path);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { parseTime } = await import("../core/schedule.ts"); // not a duration: a time, or refused as one
    try {
      return parseTime(given, { now, hostZone: around.hostZone, path });
    } catch (wrong) {
      if (!(wrong instanceof AppError) || /^[\d+]/.test(given)) throw wrong;
      throw badInput(
        path,
        wrong.message,
        "Write how far back, as in 2h or 1d for since this time yesterday, or a time as in 2026-05-01T02:30.",
        wrong.code,
      );
    }
  }
}

/** Both ends of a time, which must be in their order. Errors: AppError invalid `bad_time`, `bad_range`. */
export async function spanOf(
  input: { readonly since: string | undefined; readonly until: string | undefined },
  around: Around,
): Promise<{ readonly since: Instant | null; readonly until: Instant | null }> {
  const now = around.clock.now();
  const since = await instantOf(input.since, "--since", now, around);
  const until = await instantOf(input.until, "--until", now, around);
  if (since !== null && until !== null && since > until)
    throw badInput(
      "--until",
      "--until is before --since, so nothing lies between them",
      "Give the earlier one to --since.",
      "bad_range",
    );
  return { since, until };
}
