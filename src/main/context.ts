/** The store, opened with what an operation is given beside it. */
import type { CommandWorld } from "../cli/cli.ts";
import type { Caller, StoreContext } from "../ops/operation.ts";
import type { Settings } from "../ops/config/settings.ts";
import type { OpenContext } from "../ops/world.ts";
import { hostIdOf, outputFiles } from "./host.ts";
import { LOOK_MS, SILENCE_PATIENCE_MS } from "./state.ts";

/**
 * Opens the store for one command; null when it is to be read and nothing was put in yet.
 * Errors: AppError as `openStore` has them.
 */
export async function openContext(
  world: CommandWorld,
  use: "read" | "write",
  caller: Caller,
): Promise<OpenContext | null> {
  const { AppError } = await import("../core/errors.ts");
  const [{ openStore, parseStoreAddress }, { operations }] = await Promise.all([
    import("../store/open.ts"),
    import("../store/operations.ts"),
  ]);
  const settings = await world.settings();
  const address = parseStoreAddress(settings.store, world.places.state);
  const open = () => openStore({ address, table: operations, clock: world.clock, use });
  try {
    const handle = await open().catch((error: unknown) => {
      if (use === "write" || !(error instanceof AppError) || error.code !== "older_schema") throw error;
      return afterMigration(world, open, error); // whoever holds the lock may just be making it
    });
    const context = await storeContext(world, handle.store, settings, caller, use === "write", async () => {
      const answer = await world.askDaemon();
      return { mode: "health" in answer ? answer.health.mode : "none" };
    });
    return { context, close: () => handle.close() };
  } catch (error) {
    if (use === "read" && error instanceof AppError && error.code === "no_store") return null; // nothing was put in yet
    throw error;
  }
}

/** Opens a store for reading as soon as whoever holds the lock has brought it up to date; nobody does: the refusal as it was. */
async function afterMigration<T>(world: CommandWorld, open: () => Promise<T>, refusal: Error): Promise<T> {
  const { AppError } = await import("../core/errors.ts");
  const deadline = performance.now() + SILENCE_PATIENCE_MS;
  for (;;) {
    const isHeld = (await world.lockHolder()) !== null;
    try {
      return await open();
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "older_schema") throw error;
      if (!isHeld || performance.now() >= deadline) throw refusal;
    }
    await world.wait(LOOK_MS);
  }
}

/** What an operation is given. @param make whether a host without an id gets one */
export async function storeContext(
  world: CommandWorld,
  store: StoreContext["store"],
  settings: Settings,
  caller: Caller,
  make: boolean,
  daemon: StoreContext["daemon"],
): Promise<StoreContext> {
  const { build, clock, places } = world;
  return {
    clock,
    get hostZone() {
      return world.hostZone;
    },
    build,
    places,
    settings,
    store,
    hostId: await hostIdOf(places, make),
    caller,
    daemon,
    output: outputFiles(places),
    findProgram: world.findProgram,
    isFolder: world.isFolder,
    isRoot: world.isRoot,
    agents: world.agents,
    trees: world.trees,
    leftovers: world.leftovers,
  };
}
