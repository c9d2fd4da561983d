/** The state folder: whether it can be used, what is said when it cannot, and its lock. */
import { accessSync, constants, mkdirSync, statSync } from "node:fs";
import type { Places } from "../ops/places.ts";
import type { World } from "../ops/world.ts";

/**
 * How long a daemon that holds the lock may be silent before a command gives up: it is starting, or it makes its lost
 * socket anew, which it looks after every 2 s.
 */
export const SILENCE_PATIENCE_MS = 10_000;
/** How often a lock that is held, or a daemon that does not answer yet, is looked at. */
export const LOOK_MS = 20;

/**
 * The state folder can be used: made and writable for who writes; for who reads it may not be there yet.
 * Errors: AppError unreachable `state_unusable`, `disk_full`.
 */
export async function requireState({ state }: Places, use: "read" | "write"): Promise<void> {
  try {
    if (use === "write") mkdirSync(state, { recursive: true, mode: 0o700 });
    const found = statSync(state);
    if (!found.isDirectory()) throw Object.assign(new Error("it is not a folder"), { code: "ENOTDIR" });
    accessSync(state, use === "write" ? constants.R_OK | constants.W_OK | constants.X_OK : constants.X_OK);
  } catch (error) {
    if (use === "read" && codeOf(error) === "ENOENT") return;
    throw await stateFault(error, state);
  }
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "");

const STATE_FAULTS: Readonly<Record<string, string>> = {
  ENOTDIR: "it, or what it should lie in, is not a folder",
  EEXIST: "it is not a folder",
  EACCES: "this user may not use it",
  EPERM: "this user may not use it",
  EROFS: "its file system is read-only",
  ENOENT: "what it should lie in is not there",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "its name is too long",
};

/** What the system says of a path in the state folder, in words that somebody can act on; other errors as they are. */
export async function stateFault(error: unknown, path: string): Promise<unknown> {
  const { AppError } = await import("../core/errors.ts");
  const code = codeOf(error);
  if (code === "ENOSPC" || code === "EDQUOT") return diskFull(path, error);
  const why = STATE_FAULTS[code];
  if (error instanceof AppError || why === undefined) return error;
  return new AppError("unreachable", "state_unusable", `the state folder ${path} cannot be used: ${why}`, {
    path,
    hint: "DROVER_HOME, or XDG_STATE_HOME, must name a folder that this user may write.",
    cause: error,
  });
}

/** The error of a file system without space. */
export async function diskFull(path: string, cause?: unknown): Promise<Error> {
  const { AppError } = await import("../core/errors.ts");
  return new AppError("unreachable", "disk_full", `no space is left at ${path}`, {
    path,
    hint: "Free some space; nothing was started.",
    cause,
  });
}

/** A lock of this process, until it is released or the process ends. */
export interface HeldLock {
  release(): void;
  /** Whether its file is still the one that others find. */
  isInPlace(): boolean;
}

/**
 * Takes the lock of the state folder, and of the store's file where that lies elsewhere: one daemon for each. Answers the
 * locks, or who holds one of them.
 * @param patienceMs how long a lock that is held is waited for, unless `isVain` says that it would be for nothing
 */
export async function takeLocks(
  { places, settings, wait }: Pick<World, "places" | "settings" | "wait">,
  patienceMs: number,
  isVain: () => Promise<boolean> = async () => false,
): Promise<HeldLock[] | { readonly owner: number | null }> {
  const { acquireLock } = await import("../store/lock.ts");
  const { storeFileOf } = await import("../ops/config/settings.ts");
  const storeFile = storeFileOf((await settings()).store, places);
  const files = [
    places.lockFile,
    ...(storeFile === null || storeFile === places.storeFile ? [] : [`${storeFile}.lock`]),
  ];
  const deadline = performance.now() + patienceMs;
  const held: HeldLock[] = [];
  for (const file of files) {
    const lock = await acquireLock(file, {
      onBusy: async () => {
        if (performance.now() >= deadline || (await isVain())) return false;
        await wait(LOOK_MS);
        return true;
      },
    });
    if (!lock.held) {
      for (const one of held) one.release();
      return { owner: lock.owner?.pid ?? null };
    }
    held.push(lock);
  }
  return held;
}
