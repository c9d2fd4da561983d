/** What the documents of runs need beside their records. */
import type { RunTree } from "../core/records.ts";
import { type RunTreeDocument, type RunSurroundings, toRunTreeDocument } from "./documents.ts";
import type { StoreContext } from "./operation.ts";

type Reached = Pick<StoreContext, "store" | "output">;

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
  };
}

/** The first line of an agent's prompt without what its attempts had as secrets; null where that is not known. */
export async function shownHead(
  { output }: Pick<Reached, "output">,
  { run, attempts }: Pick<RunTree, "run" | "attempts">,
): Promise<string | null> {
  if (run.target.kind !== "agent") return null;
  let head: string | null = null;
  // Each attempt has looked its secrets up anew.
  for (const { folder } of attempts)
    if (folder !== null) head = (await output.scrub(folder, head ?? run.target.prompt.head)) ?? head;
  return head;
}
