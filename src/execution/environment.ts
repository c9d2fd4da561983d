import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { AppError } from "../core/errors.ts";
import { holdsSecret, shellNames } from "../core/variable-names.ts";
import type { ProcessTarget } from "../core/target.ts";

/** The largest argument or `NAME=value` that Linux passes on (MAX_ARG_STRLEN is 128 KiB with the final NUL). */
export const MAX_WORD_BYTES = 128 * 1024 - 1;

/** Arguments and variables together: a quarter of the usual 8 MiB stack on Linux, 1 MiB on macOS, less room for the shim's own words. */
export const MAX_LAUNCH_BYTES = (process.platform === "darwin" ? 1024 : 2048) * 1024 - 32 * 1024;

/** Variables that are passed on from the daemon's own environment; provider keys and everything else are not. */
const ALLOWED = new Set(["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR", "SSH_AUTH_SOCK"]);
const ALLOWED_PREFIXES = ["LC_", "XDG_"];
const PROXIES = new Set(["http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"]);

const isAllowed = (name: string): boolean =>
  ALLOWED.has(name) || ALLOWED_PREFIXES.some((prefix) => name.startsWith(prefix)) || PROXIES.has(name.toLowerCase());

/** The system's folders, last in every PATH. */
const SYSTEM_FOLDERS = [
  "/opt/homebrew/bin",
  "/usr/local/bin",
  "/usr/bin",
  "/bin",
  "/usr/local/sbin",
  "/usr/sbin",
  "/sbin",
];

/** Folders of a user's own programs, which a daemon started by the system does not have in its PATH. */
const userFolders = (home: string, pnpmHome: string | undefined): string[] => [
  join(home, ".local/bin"),
  join(home, "bin"),
  join(home, ".bun/bin"),
  join(home, ".cargo/bin"),
  join(home, ".npm-global/bin"),
  pnpmHome ?? join(home, process.platform === "darwin" ? "Library/pnpm" : ".local/share/pnpm"),
];

/** PATH with the usual folders that exist appended, duplicates and empty parts (the working directory, to a shell) removed. */
export function completePath(
  path: string,
  home: string,
  pnpmHome?: string,
  exists: (folder: string) => boolean = existsSync,
): string {
  const own = path.split(":").filter((part) => part !== "");
  const usual = [...userFolders(home, pnpmHome), ...SYSTEM_FOLDERS].filter(
    (folder) => !own.includes(folder) && exists(folder),
  );
  return [...new Set([...own, ...usual])].join(":");
}

/** Remembers for a while what a PATH is completed to: that is asked for each start, and a dozen looks at the disk add up. */
function rememberedPaths(forMs: number, most: number): typeof completePath {
  const known = new Map<string, { readonly path: string; readonly until: number }>();
  return (path, home, pnpmHome) => {
    const key = `${path}\0${home}\0${pnpmHome ?? ""}`;
    const last = known.get(key);
    if (last !== undefined && performance.now() < last.until) return last.path;
    if (known.size >= most) known.clear();
    const completed = completePath(path, home, pnpmHome);
    known.set(key, { path: completed, until: performance.now() + forMs });
    return completed;
  };
}
const completedLately = rememberedPaths(10_000, 1_000);

/** What `composeEnvironment` takes from, later over earlier. */
export interface EnvironmentSources {
  /** The daemon's own environment. */
  readonly daemon: Readonly<Record<string, string | undefined>>;
  readonly target: Pick<ProcessTarget, "env" | "envPass">;
  readonly secrets: Readonly<Record<string, string>>;
  /** Set by drover; nothing overrides them. */
  readonly variables: Readonly<Record<string, string>>;
  /** Variables whose values are secrets whatever their names say. */
  readonly secretNames?: readonly string[];
}

/** The environment of a process that we start: the allow-list, names passed on, the target's own, secrets, then ours. Errors: `env_invalid`. */
export function composeEnvironment({ daemon, target, secrets, variables }: EnvironmentSources): Record<string, string> {
  const environment: Record<string, string> = {};
  for (const [name, value] of Object.entries(daemon)) {
    if (value !== undefined && isAllowed(name) && isName(name)) environment[name] = value;
  }
  for (const name of target.envPass) {
    const value = daemon[name];
    if (value !== undefined) environment[requireName(name, "envPass")] = value;
  }
  for (const [name, value] of Object.entries(target.env)) environment[requireName(name, "env")] = value;
  for (const [name, value] of Object.entries(secrets)) environment[requireName(name, "secrets")] = value;
  environment["PATH"] = completedLately(
    environment["PATH"] ?? "",
    environment["HOME"] ?? homedir(),
    daemon["PNPM_HOME"],
  );
  for (const [name, value] of Object.entries(variables)) environment[requireName(name, "variables")] = value;
  for (const [name, value] of Object.entries(environment))
    requireWord(`${name}=${value}`, `the variable ${name}`, `env.${name}`);
  return environment;
}

const isName = (name: string): boolean => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !shellNames.test(name);

function requireName(name: string, path: string): string {
  if (isName(name)) return name;
  throw new AppError("invalid", "env_invalid", `the variable ${JSON.stringify(name)} cannot be passed to a process`, {
    hint: "A name has letters, digits and underscores, and is none that the shell keeps for itself.",
    path: `${path}.${name}`,
  });
}

function requireWord(word: string, what: string, path: string): void {
  if (word.includes("\0"))
    throw new AppError("invalid", "env_invalid", `${what} holds a NUL byte, which no process can be given`, { path });
  const bytes = Buffer.byteLength(word);
  if (bytes <= MAX_WORD_BYTES) return;
  throw new AppError(
    "invalid",
    "env_invalid",
    `${what} has ${bytes} bytes; the system passes on at most ${MAX_WORD_BYTES}`,
    {
      hint: "Pass it in a file or on standard input.",
      path,
    },
  );
}

/** Refuses a command line that no system call would take: NUL, a word over 128 KiB, too much in all, a name like an option. Errors: `env_invalid`. */
export function requireLaunchable(argv: readonly string[], environment: Readonly<Record<string, string>>): void {
  for (const [index, word] of argv.entries())
    requireWord(word, index === 0 ? "the command" : `argument ${index}`, `argv.${index}`);
  if (argv[0]?.startsWith("-") === true) {
    throw new AppError(
      "invalid",
      "env_invalid",
      `the command ${JSON.stringify(argv[0])} begins with a dash, so a shell would take it for an option`,
      {
        hint: "Name it with its folder, such as ./-name.",
        path: "argv.0",
      },
    );
  }
  const words = [...argv, ...Object.entries(environment).map(([name, value]) => `${name}=${value}`)];
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word) + 9, 0); // each with its NUL and its pointer
  if (bytes <= MAX_LAUNCH_BYTES) return;
  throw new AppError(
    "invalid",
    "env_invalid",
    `arguments and variables have ${bytes} bytes together; the system passes on at most ${MAX_LAUNCH_BYTES}`,
    {
      hint: "Pass large values in a file or on standard input.",
      path: "argv",
    },
  );
}

/**
 * All values that must never be served: the secrets, the run token, and values of variables that were passed on or set
 * under a name that says so.
 */
export function valuesToScrub(sources: EnvironmentSources): readonly string[] {
  const { daemon, target, secrets, variables, secretNames = [] } = sources;
  const passed = target.envPass.map((name) => [name, daemon[name] ?? ""] as const);
  const named = [...passed, ...Object.entries(target.env), ...Object.entries(variables)]
    .filter(([name, value]) => holdsSecret(name, value, secretNames))
    .map(([, value]) => value);
  return [...new Set([...Object.values(secrets), ...named])];
}
