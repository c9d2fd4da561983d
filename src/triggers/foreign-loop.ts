/** What people already have elsewhere (a crontab's line, a timer), as the loop that it would be here. */
import type { LoopPolicy } from "../core/loop.ts";

/** When it is due. A cron expression without a zone is read in the host's. */
export type ForeignSchedule =
  | { readonly kind: "cron"; readonly expression: string; readonly zone: string | null }
  | { readonly kind: "interval"; readonly everyMs: number }
  /** One instant of local time, as if it were UTC. */
  | { readonly kind: "once"; readonly localMs: number; readonly zone: string | null };

/** A loop as it was understood; it has not been checked against what this host has. */
export interface ForeignLoop {
  /** A name made from what runs: always the same for the same command, not unique. */
  readonly name: string;
  readonly schedule: ForeignSchedule;
  readonly argv: readonly [string, ...string[]];
  /** `argv` is `/bin/sh -c` and the string that people are shown. */
  readonly shell: boolean;
  /** Absolute; null is the user's own folder. */
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string>>;
  /** Variables that are passed on from the daemon's environment. */
  readonly envPass: readonly string[];
  /** What differs from the usual policy. */
  readonly policy: Partial<LoopPolicy>;
  /** Variables that hold secrets: they are not taken, and a person has to say where they come from. */
  readonly withheld: readonly string[];
}

/**
 * What became of one place of a source. `setting` and `comment` say something about others, `left` is understood and can be
 * no loop here, `problem` is wrong. @see ForeignLoop
 */
export interface Reading {
  /** From 1; where its first character stands. */
  readonly line: number;
  readonly kind: "loop" | "setting" | "comment" | "left" | "problem";
  /** As it was written, without the values of secrets. */
  readonly text: string;
  readonly loop: ForeignLoop | null;
  /** Of `left` and `problem`: why. */
  readonly reason: string | null;
  /** Of `left` and `problem`: what to do about it. */
  readonly hint: string | null;
  /** What is worth knowing: where drover does it another way, and what is left to do. */
  readonly notes: readonly string[];
}

/** Longest name that an import makes; what people call their own may be longer. */
export const NAME_LENGTH = 40;

/** Text as the name of a loop: small letters, digits and `. _ -`; `fallback` where nothing is left of it. */
export function nameFrom(text: string, fallback: string): string {
  const name = text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[^a-z0-9]+/, "")
    .slice(0, NAME_LENGTH)
    .replace(/[^a-z0-9]+$/, "");
  return name === "" ? fallback : name;
}

/** Words before a command that say how it runs, not what; the number of words that each takes along. */
const WRAPPERS: ReadonlyMap<string, number> = new Map([
  ["sudo", 0],
  ["nice", 0],
  ["ionice", 0],
  ["nohup", 0],
  ["exec", 0],
  ["env", 0],
  ["time", 0],
  ["chronic", 0],
  ["setsid", 0],
  ["caffeinate", 0],
  ["timeout", 1],
  ["flock", 1],
  ["command", 0],
]);
/** Flags of these that take a word of their own. */
const WRAPPER_FLAGS = /^-(?:n|c|u|g|k|s|w|p|-user|-signal|-wait)$/;

/** Programs that run a file: the file names the work. */
const INTERPRETERS =
  /^(?:(?:ba|da|z|k|c)?sh|python[\d.]*|node|perl|ruby|php[\d.]*|lua|Rscript|java|deno|bun|run-parts)$/;
/** Programs whose next word says what they do. */
const WITH_VERB =
  /^(?:git|make|docker|podman|npm|npx|pnpm|yarn|cargo|go|systemctl|apt|apt-get|certbot|kubectl|restic|borg|rclone|aws|gcloud|drover)$/;

const baseName = (word: string): string => word.split("/").at(-1) ?? word;

/** A name for what a shell string or a command line runs: `/opt/backup.sh --all` is `backup`. */
export function nameOfCommand(command: string, fallback: string): string {
  // The folder that it changes to, and a test before it, are not what it does.
  const parts = command.split(/\n|;|&&|\|\|?/).map((part) => part.replace(/^[({\s]+|[)}\s]+$/g, ""));
  const main = parts.find(
    (part) => part !== "" && !/^(?:cd|test|\[|\[\[|\.|source|export|set|true|:)(?:\s|$)/.test(part),
  );
  const words = (main ?? parts[0] ?? "")
    .split(/\s+/)
    .map((word) => word.replace(/^["']+|["']+$/g, ""))
    .filter((word) => word !== "" && !/^\d*[<>]/.test(word));
  let at = 0;
  const next = (): string | undefined => words[at++];
  let word = next();
  for (let left = 0; word !== undefined; word = next()) {
    if (/^[A-Za-z_]\w*=/.test(word)) continue;
    const takes = WRAPPERS.get(baseName(word));
    if (takes !== undefined) {
      left = takes;
      while (words[at]?.startsWith("-") === true) {
        if (WRAPPER_FLAGS.test(words[at] ?? "")) at++;
        at++;
      }
    } else if (left > 0) left--;
    else break;
  }
  if (word === undefined) return fallback;
  const program = baseName(word);
  const argument = words.slice(at).find((one) => !/^[-+\d&]/.test(one));
  if (INTERPRETERS.test(program) && argument !== undefined && !words.slice(at).includes("-c"))
    return nameFrom(withoutExtension(baseName(argument)), fallback);
  if (WITH_VERB.test(program) && argument !== undefined && /^[\w-]+$/.test(argument))
    return nameFrom(`${program}-${argument}`, fallback);
  return nameFrom(withoutExtension(program), fallback);
}

const withoutExtension = (name: string): string =>
  name.replace(/\.(?:sh|bash|zsh|py|pl|rb|js|mjs|ts|php|lua|r|jar|exe)$/i, "");
