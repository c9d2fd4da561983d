/** What a run waits for, in words: for `why` and for whoever waits with it. */
import type { WaitReason } from "../../core/run.ts";

/** Behind "It waits"; an account's has a sentence of its own. Closed: a new reason does not compile without its words. */
export type PlainWait = Exclude<WaitReason, "limit" | "account">;
export const WAITS: { readonly [R in PlainWait]: string } = {
  retry: "to try again",
  timer: "for the time to which its start was put off",
  capacity: "because its provider is short of capacity",
  disk: "because the host is short of free disk space",
  program: "because its agent's program is not there",
};

export const isPlainWait = (reason: string | null): reason is PlainWait =>
  reason !== null && Object.hasOwn(WAITS, reason);
