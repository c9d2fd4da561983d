/** Where everything of one installation lies, from the environment alone. */
import { createHash } from "node:crypto";
import { homedir, tmpdir, userInfo } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { AppError } from "../core/errors.ts";

/** Longest path of a unix socket in bytes: the kernel keeps 108 with the closing zero on Linux, 104 on macOS. */
const SOCKET_PATH_BYTES = process.platform === "darwin" ? 103 : 107;

export interface Places {
  /** The one folder that `DROVER_HOME` names; null when the usual places are used. */
  readonly home: string | null;
  readonly configFile: string;
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
  readonly socket: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Errors: AppError invalid `bad_home` for a relative `DROVER_HOME`. Relative XDG folders are ignored, as their specification asks.
 */
export function placesOf(env: Environment): Places {
  const home = env["DROVER_HOME"] === undefined || env["DROVER_HOME"] === "" ? null : env["DROVER_HOME"];
  if (home !== null && (!isAbsolute(home) || home.includes("\0")))
    throw new AppError("invalid", "bad_home", "DROVER_HOME must be an absolute path", { path: "DROVER_HOME" });
  const xdg = (name: string, usual: string): string => {
    const said = env[name];
    return said !== undefined && isAbsolute(said) ? said : join(env["HOME"] || homedir(), usual);
  };
  const state = home === null ? join(xdg("XDG_STATE_HOME", ".local/state"), "drover") : resolve(home);
  const config = home === null ? join(xdg("XDG_CONFIG_HOME", ".config"), "drover") : state;
  return {
    home: home === null ? null : state,
    configFile: join(config, "config.yaml"),
    state,
    runs: join(state, "runs"),
    worktrees: join(state, "worktrees"),
    logs: join(state, "logs"),
    daemonLog: join(state, "logs", "daemon.log"),
    storeFile: join(state, "drover.db"),
    lockFile: join(state, "daemon.lock"),
    keyFile: join(state, "run-token.key"),
    hostFile: join(state, "host"),
    socket: socketOf(home === null ? env["XDG_RUNTIME_DIR"] : undefined, state),
  };
}

/** A socket of its own for each state folder: two of them may share a runtime folder, or a folder for temporary files. */
function socketOf(runtime: string | undefined, state: string): string {
  const key = createHash("sha256").update(state).digest("hex").slice(0, 12);
  const wanted =
    runtime !== undefined && isAbsolute(runtime) ? join(runtime, "drover", `${key}.sock`) : join(state, "drover.sock");
  if (Buffer.byteLength(wanted) <= SOCKET_PATH_BYTES) return wanted;
  const short = join(tmpdir(), `drover-${userInfo().uid}-${key}`, "drover.sock");
  return Buffer.byteLength(short) <= SOCKET_PATH_BYTES
    ? short
    : join("/tmp", `drover-${userInfo().uid}-${key}`, "drover.sock");
}
