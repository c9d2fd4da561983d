/** What the documents of runs need beside their records. */
import type { RunSurroundings } from "./documents.ts";
import type { StoreContext } from "./operation.ts";

export async function surroundingsOf({ store, output }: StoreContext): Promise<RunSurroundings> {
  const hosts = await store.hosts.list({});
  return {
    hostNames: new Map(hosts.map((host) => [host.id, host.name])),
    pathOf: (folder, stream) => output.pathOf(folder, stream),
  };
}
