/** Who asks: what this process shows of the run that it is part of. */
import { readFileSync } from "node:fs";
import type { ClientOptions } from "../http/client.ts";
import type { Caller } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import { isOwn, socketsOf } from "../ops/daemon/socket-record.ts";
import type { World } from "../ops/world.ts";

type Here = Pick<World, "env" | "places" | "build">;

/** What this process shows of the run that it is part of: its own environment, or that of a process it descends from. */
async function presented(
  env: Here["env"],
  startsWork: boolean,
): Promise<{ readonly token: string | null; readonly insideRun: boolean }> {
  const own = {
    token: env["DROVER_RUN_TOKEN"] || null,
    insideRun: Boolean(env["DROVER_RUN_ID"] || env["DROVER_ATTEMPT_ID"]),
  };
  if (own.token !== null || own.insideRun || !startsWork) return own;
  const { inheritedRun } = await import("../execution/ancestors.ts");
  return inheritedRun();
}

/**
 * Who asks here.
 * Errors: AppError unauthorised when a run asks without its token, and `startsWork` says that one is needed.
 */
export async function callerHere({ env, places }: Here, startsWork: boolean): Promise<Caller> {
  const shown = await presented(env, startsWork);
  const { callerOf } = await import("../ops/runs/run-token.ts");
  return callerOf(shown.token === null ? new Uint8Array() : await tokenKey(places, false), shown, startsWork);
}

/**
 * Asks the daemon, wherever it listens: as which version, for which run. Errors: AppError unreachable `daemon_down` where
 * nobody listens, and those of `ask`.
 */
export async function askWhereItListens<T>(
  { env, places, build }: Here,
  startsWork: boolean,
  ask: (options: ClientOptions) => Promise<T>,
): Promise<T> {
  const { token, insideRun } = await presented(env, startsWork);
  const { AppError } = await import("../core/errors.ts");
  let nobody = new AppError("unreachable", "daemon_down", "no daemon is running", { hint: "drover up" });
  for (const socket of socketsOf(places).filter((one) => isOwn(one, places)))
    try {
      return await ask({ socket, version: build.version, runToken: token, insideRun });
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "daemon_down") throw error;
      nobody = error; // a stale record, or the socket of one that was killed
    }
  throw nobody;
}

/** The key of run tokens, made on first use. Without `make` an absent key is one that signs nothing. */
export async function tokenKey(places: Places, make: boolean): Promise<Uint8Array> {
  const { newTokenKey } = await import("../ops/runs/run-token.ts");
  const { keepOnce } = await import("../ops/kept.ts");
  if (make)
    return Buffer.from(
      keepOnce(places.keyFile, () => newTokenKey().toString("hex")),
      "hex",
    );
  try {
    return Buffer.from(readFileSync(places.keyFile, "utf8").trim(), "hex");
  } catch {
    return newTokenKey(); // nothing was signed yet, so every token is wrong
  }
}
