/** The token that a run's processes carry: whose work they are, signed, so that nesting is counted whatever a child says. */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { AppError } from "../../core/errors.ts";
import type { Caller } from "../operation.ts";

const KEY_BYTES = 32;
export const newTokenKey = (): Buffer => randomBytes(KEY_BYTES);

const signatureOf = (key: Uint8Array, text: string): Buffer => createHmac("sha256", key).update(text).digest();

/** `v1.<run id>.<depth>.<signature>`. */
export function signRunToken(key: Uint8Array, run: { readonly runId: string; readonly depth: number }): string {
  const text = `v1.${run.runId}.${run.depth}`;
  return `${text}.${signatureOf(key, text).toString("base64url")}`;
}

/** The run that a token was signed for; null for a token that was not signed with this key. */
export function readRunToken(
  key: Uint8Array,
  token: string,
): { readonly runId: string; readonly depth: number } | null {
  const found = /^(v1\.(run_[0-9a-z]{26})\.(\d{1,9}))\.([\w-]{43})$/.exec(token);
  if (found === null) return null;
  const [, text = "", runId = "", depth = "", signature = ""] = found;
  const given = Buffer.from(signature, "base64url");
  const right = signatureOf(key, text);
  return given.length === right.length && timingSafeEqual(given, right) ? { runId, depth: Number(depth) } : null;
}

/** What a caller shows of the run that it runs in. */
export interface Presented {
  readonly token: string | null;
  /** Its environment says that it was started by a run. */
  readonly insideRun: boolean;
}

/**
 * Who asks. A process of a run starts work only as that run: without its token it starts nothing, so that no child can
 * begin again at depth 0 by forgetting where it came from.
 * Errors: AppError unauthorised `run_token_invalid`, `run_token_missing`.
 */
export function callerOf(key: Uint8Array, presented: Presented, startsWork: boolean): Caller {
  if (presented.token !== null) {
    const run = readRunToken(key, presented.token);
    if (run === null)
      throw new AppError("unauthorised", "run_token_invalid", "the run token was not signed by this installation", {
        path: "DROVER_RUN_TOKEN",
        hint: "Unset DROVER_RUN_TOKEN when you are no part of a run.",
      });
    return { by: `run ${run.runId}`, parentRunId: run.runId };
  }
  if (presented.insideRun && startsWork)
    throw new AppError("unauthorised", "run_token_missing", "a process of a run starts work only with its run token", {
      path: "DROVER_RUN_TOKEN",
      hint: "Pass DROVER_RUN_TOKEN on to the process that calls drover.",
    });
  return { by: "person", parentRunId: null };
}
