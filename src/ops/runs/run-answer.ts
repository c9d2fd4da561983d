/** What the documents of runs need beside their records. */
import type { Store } from "../../core/ports.ts";
import type { RunTree } from "../../core/records.ts";
import type { PromptRef } from "../../core/target.ts";
import { HEAD_BYTES, headOf } from "../accounts/agent-target.ts";
import { type RunTreeDocument, type RunSurroundings, toRunTreeDocument } from "../documents.ts";
import type { StoreContext } from "../operation.ts";
import type { Remedy } from "../documents.ts";
import { usualMs } from "./usual.ts";

type Reached = Pick<StoreContext, "store" | "output" | "agents">;

/** A run as it is shown. */
export async function answerRun(context: Reached, tree: RunTree): Promise<RunTreeDocument> {
  return toRunTreeDocument(tree, await surroundingsOf(context, tree));
}

async function surroundingsOf(context: Reached, tree: RunTree): Promise<RunSurroundings> {
  const { store, output } = context;
  const hosts = await store.hosts.list({});
  return {
    head: await shownHead(context, tree),
    hostNames: new Map(hosts.map((host) => [host.id, host.name])),
    pathOf: (folder, stream) => output.pathOf(folder, stream),
    remedy: await remedyOfRun(context, tree),
    usualMs: await usualMs(store, tree.run.id),
  };
}

/** What mends a run that has failed; null for one that has not. */
async function remedyOfRun(context: Pick<StoreContext, "store" | "agents">, tree: RunTree): Promise<Remedy | null> {
  const { status, loopId, accountWish } = tree.run;
  if (status !== "failed" && status !== "timed_out") return null;
  const { store } = context;
  const { remedyForRun } = await import("../why/remedy.ts"); // most runs need none
  return remedyForRun(
    context,
    tree,
    loopId === null ? null : await store.loops.get({ loopId }),
    accountWish === null ? null : await store.accounts.get({ accountId: accountWish }),
  );
}

/** A longer prompt is not read for its first line. */
const READ_BYTES = 1024 * 1024;

/** The first line of an agent's prompt without what its attempts had as secrets; null where that is not known. */
export async function shownHead(
  { store, output }: Pick<Reached, "store" | "output">,
  { run, attempts }: Pick<RunTree, "run" | "attempts">,
): Promise<string | null> {
  if (run.target.kind !== "agent") return null;
  const folders = attempts.flatMap(({ folder }) => (folder === null ? [] : [folder]));
  if (folders.length === 0) return null;
  let text = await beginningOf(store, run.target.prompt);
  let isKnown = false;
  // Each attempt has looked its secrets up anew.
  for (const folder of folders) {
    const scrubbed = await output.scrub(folder, text);
    if (scrubbed === null) continue;
    isKnown = true;
    text = scrubbed;
  }
  return isKnown ? headOf(text) : null;
}

/** A first line that was cut may end within a secret, which is found only where it is whole. */
async function beginningOf(store: Store, { head, digest, bytes }: PromptRef): Promise<string> {
  if (!head.endsWith("…")) return head;
  const kept = bytes <= READ_BYTES ? await store.prompts.get({ digest }) : null;
  if (kept !== null) return Buffer.from(kept.content, "base64").subarray(0, HEAD_BYTES).toString();
  return head.replace(/\S*$/, "…"); // without its last word: most secrets are one
}
