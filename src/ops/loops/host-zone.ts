/** Whether this host's zone is what the environment asks for. */
import { badInput } from "../fields.ts";

/** What the engine answers where it cannot make anything of `TZ`. */
const FALLBACKS = new Set(["UTC", "Etc/UTC", "Etc/Unknown", "GMT"]);
/** Names of UTC in `TZ` that are no IANA names. */
const UTC_NAMES = /^:?(UTC|GMT|Z|Universal|Zulu)([+-]?0+)?$/i;

/**
 * The zone where none is said. A `TZ` that means nothing must not turn into UTC behind a person's back.
 * Errors: AppError invalid `unknown_zone` with the path `TZ`.
 * @param asked the environment's `TZ`
 * @param hostZone the zone that was made of it; there are engines that make none of a wrong one
 */
export function requireHostZone(asked: string | undefined, hostZone: string | undefined): string {
  if (hostZone !== undefined && !FALLBACKS.has(hostZone)) return hostZone;
  if (asked === undefined || asked === "" || UTC_NAMES.test(asked)) return "UTC";
  try {
    new Intl.DateTimeFormat("en", { timeZone: asked.replace(/^:/, "") });
    return hostZone ?? "UTC";
  } catch {
    throw badInput(
      "TZ",
      `the environment's TZ is ${JSON.stringify(asked)}, which is no time zone`,
      "Say the zone with --tz, as in --tz Europe/Rome, or correct TZ.",
      "unknown_zone",
    );
  }
}
