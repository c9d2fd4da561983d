/** What `config.yaml` and the environment say, each value with where it comes from. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { formatDuration, parseDuration } from "../../core/duration.ts";
import { AppError } from "../../core/errors.ts";
import { defaultLimits, type Limits } from "../../core/limits.ts";
import { formatSize, parseSize } from "../../core/size.ts";
import type { Places } from "../places.ts";

export type Source = "default" | "file" | "environment";

export interface Setting {
  /** Its place in the file: `limits.leaseMs`. */
  readonly key: string;
  readonly value: string | number;
  /** As it is written in the file: `60s`, `1GiB`, `256`. */
  readonly text: string;
  readonly source: Source;
}

export interface Problem {
  readonly level: "error" | "warning";
  /** 1 for the first line; null where the file as a whole is meant. */
  readonly line: number | null;
  readonly key: string | null;
  readonly message: string;
}

export interface Settings {
  /** `sqlite:<file>` or `postgres://...`. */
  readonly store: string;
  readonly limits: Limits;
  /** Each with its source, in the order of the reference. */
  readonly all: readonly Setting[];
}

export interface ReadSettings {
  readonly settings: Settings;
  readonly problems: readonly Problem[];
}

type LimitName = keyof Limits;
type Environment = Readonly<Record<string, string | undefined>>;

const LIMIT_NAMES = Object.keys(defaultLimits) as LimitName[];
/** Written as `caps: { commands, agents }`; the limits' own names say the same. */
export const CAPS: { readonly [key: string]: LimitName } = { commands: "commandCap", agents: "agentCap" };
/** Agents at a time on a host with fewer cores than this. */
const SMALL_HOST = { cores: 4, agentCap: 2 };

/**
 * Reads the settings. Nothing is thrown for what the file holds: its faults are problems, the values stay what they were.
 * @param text what the file holds; null where there is none
 */
export async function readSettings(env: Environment, places: Places, text: string | null): Promise<ReadSettings> {
  const limits: { -readonly [K in LimitName]: number } = { ...defaultLimits };
  if (availableParallelism() < SMALL_HOST.cores) limits.agentCap = SMALL_HOST.agentCap;
  const sources = new Map<string, Source>();
  const problems: Problem[] = [];
  let store = `sqlite:${places.storeFile}`;

  if (text !== null && text.trim() !== "") {
    for (const entry of (await import("./config-file.ts")).entriesOf(text, problems)) {
      const fault = (message: string, level: Problem["level"] = "error") =>
        problems.push({ level, line: entry.line, key: entry.key, message });
      const limit = limitOf(entry.key);
      if (entry.key === "store") {
        if (typeof entry.value !== "string") fault("store must be sqlite:<file> or postgres://...");
        else {
          store = entry.value;
          sources.set("store", "file");
        }
      } else if (limit !== null) {
        try {
          if (sources.has(limit)) fault(`${limit} is given twice`);
          limits[limit] = readLimit(limit, entry.value, entry.key);
          sources.set(limit, "file");
        } catch (error) {
          if (!(error instanceof AppError)) throw error;
          fault(error.message + (error.hint === undefined ? "" : `. ${error.hint}`));
        }
      } else fault(`there is no setting ${entry.key}`, "warning");
    }
  }
  if (env["DROVER_STORE"] !== undefined && env["DROVER_STORE"] !== "") {
    store = env["DROVER_STORE"];
    sources.set("store", "environment");
  }
  const all = (): Setting[] => [
    {
      key: "store",
      value: withoutPassword(store),
      text: withoutPassword(store),
      source: sources.get("store") ?? "default",
    },
    ...LIMIT_NAMES.map((name) => ({
      key: keyOf(name),
      value: limits[name],
      text: writeLimit(name, limits[name]),
      source: sources.get(name) ?? "default",
    })),
  ];
  return {
    settings: {
      store,
      limits,
      get all() {
        return all();
      },
    },
    problems,
  };
}

/** What `config.yaml` holds; null where there is none. Errors: AppError unreachable `config_unreadable`. */
export function readConfigFile(places: Places): string | null {
  try {
    return readFileSync(places.configFile, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new AppError("unreachable", "config_unreadable", `the configuration cannot be read (${code})`, {
      path: places.configFile,
      hint: "Make the file readable for this user, or move it away.",
      cause: error,
    });
  }
}

/** The settings as far as they can be read, for what has to work with a broken configuration too. */
export async function settingsAsFarAsRead(env: Environment, places: Places): Promise<Settings> {
  let text: string | null = null;
  try {
    text = readConfigFile(places);
  } catch (error) {
    if (!(error instanceof AppError)) throw error; // that the file cannot be read is said by whoever needs it
  }
  return (await readSettings(env, places, text)).settings;
}

/** The settings, or an AppError invalid `bad_config` with the first fault's line. Warnings go to `warn`. */
export async function requireSettings(
  env: Environment,
  places: Places,
  warn: (message: string) => void,
): Promise<Settings> {
  const { settings, problems } = await readSettings(env, places, readConfigFile(places));
  const error = problems.find((problem) => problem.level === "error");
  if (error !== undefined)
    throw new AppError("invalid", "bad_config", error.message, {
      path: error.line === null ? places.configFile : `${places.configFile}:${error.line}`,
      hint: "`drover config check` lists every problem of the file. Nothing was changed.",
    });
  for (const problem of problems) warn(`${places.configFile}:${problem.line ?? 1}: ${problem.message}`);
  return settings;
}

/** The file of a SQLite store; null for another kind. */
export function storeFileOf(store: string, places: Places): string | null {
  if (!store.startsWith("sqlite:")) return null;
  const file = store.slice("sqlite:".length);
  return file.startsWith("/") ? file : join(places.state, file);
}

/** A store's address for people: without its password. */
export const withoutPassword = (store: string): string => store.replace(/^(\w+:\/\/[^:@/]*):[^@/]*@/, "$1:***@");

const keyOf = (name: LimitName): string => {
  const cap = Object.entries(CAPS).find(([, limit]) => limit === name);
  return cap === undefined ? `limits.${name}` : `caps.${cap[0]}`;
};

function limitOf(key: string): LimitName | null {
  const [section, name = ""] = key.split(".", 2);
  if (section === "caps") return Object.hasOwn(CAPS, name) ? (CAPS[name] ?? null) : null;
  return section === "limits" && LIMIT_NAMES.includes(name as LimitName) ? (name as LimitName) : null;
}

function readLimit(name: LimitName, value: unknown, key: string): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return checkLimit(name, value, key);
  if (typeof value === "string" && name.endsWith("Ms")) return checkLimit(name, parseDuration(value, key), key);
  if (typeof value === "string" && name.endsWith("Bytes")) return checkLimit(name, parseSize(value, key), key);
  const wanted = name.endsWith("Ms")
    ? "a duration such as 60s"
    : name.endsWith("Bytes")
      ? "a size such as 1GiB"
      : "a whole number";
  throw new AppError("invalid", "bad_config", `${key} must be ${wanted}`, { path: key });
}

/** Limits for which nothing would be a fault of its own: no time to renew, no room to start. */
const MAY_BE_ZERO: readonly LimitName[] = [
  "minFreeBytes",
  "maxDescendants",
  "maxDepth",
  "drainMs",
  "tailBytes",
  "commandCap",
  "agentCap",
  "logRetentionMs",
  "daemonLogFiles",
];

function checkLimit(name: LimitName, value: number, key: string): number {
  if (value === 0 && !MAY_BE_ZERO.includes(name))
    throw new AppError("invalid", "bad_config", `${key} must be more than nothing`, { path: key });
  return value;
}

function writeLimit(name: LimitName, value: number): string {
  return name.endsWith("Ms") ? formatDuration(value) : name.endsWith("Bytes") ? formatSize(value) : String(value);
}
