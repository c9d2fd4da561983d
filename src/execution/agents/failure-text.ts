/** What people wrote into error messages, as classes: the last resort, where a provider has no field that says it. */
import type { FailureClass } from "../../core/run.ts";

/** A status code that stands for itself, not a part of a path, an address, a version or a longer number. */
const status = (codes: string): string => `(?<![\\w:/.-])(?:${codes})(?![\\w/.-]*\\w)`;

/**
 * In order: the root cause first, because messages quote one another ("connection error: 429 Too Many Requests" is a
 * rate limit). Apostrophes are straight, letters small.
 */
const TABLE: readonly (readonly [FailureClass, RegExp])[] = [
  [
    "context",
    /prompt is too long|ran out of room in the model's context|context[_ ]length[_ ]exceeded|maximum context length|input token count.{0,40}exceeds|exceeds? the (?:model's )?context (?:window|length)|context window (?:is )?(?:full|exceeded)/,
  ],
  ["turn_limit", /maximum number of turns|max(?:imum)? session turns/],
  ["budget", /maximum budget|budget (?:is )?exhausted|max_budget/],
  [
    "quota",
    /(?<!not your )usage[_ ]limit|hit your .{0,40}limit|reached your .{0,40}limit|(?:daily|weekly|monthly|5-hour|session|opus|spend(?:ing)?) limit|quota exceeded|exceeded your .{0,20}quota|exhausted your .{0,20}quota|insufficient[_ ](?:quota|credits?|funds|balance)|credit balance is too low|out of credits|billing[_ ](?:error|hard)|payment required|quotafailure/,
  ],
  [
    "rate_limited",
    new RegExp(
      `${status("429")}|too many requests|rate[_ -]?limit|limiting requests|throttl(?:ed|ing)|resource[_ ]exhausted|slow down`,
    ),
  ],
  [
    "auth",
    new RegExp(
      `${status("401|403")}|unauthori[sz]ed|invalid[_ ](?:x-)?api[_ -]?key|incorrect api key|api[_ ]key[_ ](?:not valid|invalid)|not logged in|run \\/login|failed to authenticate|authentication|no auth provided|missing environment variable|token (?:has |is )?(?:expired|revoked|invalid)|logged out|(?:sign|log) in again|refresh token|permission_error`,
    ),
  ],
  [
    "env_invalid",
    /model[_ ]not[_ ]found|issue with the selected model|model .{0,80}(?:does not exist|not found|is not (?:supported|available)|may not exist)|unknown model|not valid utf-8|error loading config|not inside a trusted directory|cannot be used with root/,
  ],
  [
    "overloaded",
    new RegExp(
      `overloaded|at capacity|high demand|${status("500|502|503|504|520|522|524|529")}|service unavailable|bad gateway|gateway time-?out|internal server error|server_error|temporarily unavailable`,
    ),
  ],
  [
    "network",
    /econn(?:refused|reset|aborted)|etimedout|enotfound|eai_again|ehostunreach|enetunreach|epipe|connection (?:was )?(?:refused|reset|failed|lost|closed|error|timed out)|connection to the api was lost|stream disconnected|stream (?:was )?(?:closed|ended|dropped)|timed? ?out|waiting for network|network|socket hang up|fetch failed|error sending request|cannot connect|could not connect|unable to connect|dns|certificate/,
  ],
];

/** The class that a message speaks of; null when it says nothing that is known. */
export function classifyText(message: string): FailureClass | null {
  // What is long is no message but a dump: the words at its beginning count.
  const plain = message
    .slice(0, 4_000)
    .replaceAll(/[\u2018\u2019\u02bc]/g, "'")
    .toLowerCase();
  return TABLE.find(([, words]) => words.test(plain))?.[0] ?? null;
}

/** The class of an HTTP status by itself; null where a status says too little. */
export function classifyStatus(httpStatus: number | null): FailureClass | null {
  if (httpStatus === null) return null;
  if (httpStatus === 429) return "rate_limited";
  if (httpStatus === 401 || httpStatus === 403) return "auth";
  if (httpStatus === 402) return "quota";
  if (httpStatus >= 500 && httpStatus <= 599) return "overloaded";
  return null;
}

/** The HTTP status that a message names. */
export function statusIn(message: string): number | null {
  const found = /(?:status|error|http|code|\()[:\s]*(?:http\/[\d.]+\s+)?([45]\d\d)(?!\d)/i.exec(message);
  return found === null ? null : Number(found[1]);
}
