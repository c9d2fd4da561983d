/** The store of an installation, opened to be read beside the program. */
import { join } from "node:path";
import type { Store } from "../../src/core/ports.ts";
import { openStore, parseStoreAddress } from "../../src/store/open.ts";
import { asStore, operations } from "../../src/store/operations.ts";
import type { Installation } from "./installation.ts";

export async function openForReading(
  at: Installation,
  address: string | undefined,
): Promise<{ readonly store: Store; close(): Promise<void> }> {
  const state = join(at.home, "state");
  const handle = await openStore({
    address: parseStoreAddress(address ?? `sqlite:${join(state, "drover.db")}`, state),
    table: operations,
    clock: { now: Date.now },
    use: "read",
  });
  return { store: asStore(handle.store), close: () => handle.close() };
}
