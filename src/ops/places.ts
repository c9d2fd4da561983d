/** Where everything of one installation lies, from the environment alone. */
import { createHash } from "node:crypto";
import { tmpdir, userInfo } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { AppError } from "../core/errors.ts";

/** Longest path of a unix socket in bytes: the kernel keeps 108 with the closing zero on Linux, 104 on macOS. */
const SOCKET_PATH_BYTES = process.platform === "darwin" ? 103 : 107;

export interface Places {
  /** The one folder that `DROVER_HOME` names; null when the usual places are used. */
  readonly home: string | null;
  readonly configFile: string;
  /** Workflow templates of the user's own. */
  readonly templates: string;
  readonly state: string;
  readonly runs: string;
  /** Worktrees of runs. */
  readonly worktrees: string;
  readonly logs: string;
  readonly daemonLog: string;
  /** The store's file where nothing else is said. */
  readonly storeFile: string;
  readonly lockFile: string;
  /** The key that signs run tokens, 0600. */
  readonly keyFile: string;
  /** The id of this host, made once. */
  readonly hostFile: string;
  /** Where this environment has a daemon listen. One that is up may have been started under another: it records where it is. */
  readonly socket: string;
  /** In it the daemon says where it listens, 0600. */
  readonly socketRecord: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The user's home: `HOME`, or what the system's list of users has where that is no absolute path; null where neither is.
 * It is asked anew, and not of `os.homedir`, which takes an empty `HOME` as it is.
 */
export function homeOf(env: Environment): string | null {
  const said = env["HOME"];
  if (said !== undefined && isAbsolute(said)) return said;
  try {
    const { homedir } = userInfo();
    return isAbsolute(homedir) ? homedir : null;
  } catch {
    return null; // a user whom the system does not list, as in some containers
  }
}

/**
 * Errors: AppError invalid `bad_home` for a relative `DROVER_HOME`, which would be another folder for each caller;
 * `no_home` where nothing says where the state lies. Relative XDG folders are ignored, as their specification asks.
 */
export function placesOf(env: Environment): Places {
  const home = env["DROVER_HOME"] === undefined || env["DROVER_HOME"] === "" ? null : env["DROVER_HOME"];
  if (home !== null && (!isAbsolute(home) || home.includes("\0")))
    throw new AppError("invalid", "bad_home", "DROVER_HOME must be an absolute path", {
      path: "DROVER_HOME",
      hint: 'As in DROVER_HOME="$PWD/drover".',
    });
  const xdg = (name: string, usual: string): string => {
    const said = env[name];
    if (said !== undefined && isAbsolute(said)) return said;
    const own = homeOf(env);
    if (own === null)
      throw new AppError("invalid", "no_home", "this user has no home folder: HOME is no absolute path", {
        path: "HOME",
        hint: "Set HOME, or DROVER_HOME to a folder for everything of drover's.",
      });
    return join(own, usual);
  };
  const state = home === null ? join(xdg("XDG_STATE_HOME", ".local/state"), "drover") : resolve(home);
  const config = home === null ? join(xdg("XDG_CONFIG_HOME", ".config"), "drover") : state;
  const runtime = home === null ? env["XDG_RUNTIME_DIR"] : undefined;
  let socket: string | undefined;
  return {
    home: home === null ? null : state,
    configFile: join(config, "config.yaml"),
    templates: join(config, "templates"),
    state,
    runs: join(state, "runs"),
    worktrees: join(state, "worktrees"),
    logs: join(state, "logs"),
    daemonLog: join(state, "logs", "daemon.log"),
    storeFile: join(state, "drover.db"),
    lockFile: join(state, "daemon.lock"),
    keyFile: join(state, "run-token.key"),
    hostFile: join(state, "host"),
    // When it is asked for: a list does not, and to name it takes a digest.
    get socket() {
      return (socket ??= socketOf(runtime, state));
    },
    socketRecord: join(state, "daemon.socket"),
  };
}

/** A socket of its own for each state folder: two of them may share a runtime folder, or a folder for temporary files. */
function socketOf(runtime: string | undefined, state: string): string {
  const key = createHash("sha256").update(state).digest("hex").slice(0, 12);
  const wanted =
    runtime !== undefined && isAbsolute(runtime) ? join(runtime, "drover", `${key}.sock`) : join(state, "drover.sock");
  if (Buffer.byteLength(wanted) <= SOCKET_PATH_BYTES) return wanted;
  const short = join(tmpdir(), `drover-${userInfo().uid}-${key}`, "drover.sock");
  return isAbsolute(short) && Buffer.byteLength(short) <= SOCKET_PATH_BYTES
    ? short
    : join("/tmp", `drover-${userInfo().uid}-${key}`, "drover.sock");
}
