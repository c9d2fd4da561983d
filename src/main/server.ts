/** The daemon's socket: each request is an operation, performed on the daemon's store. */
import type { CommandWorld } from "../cli/cli.ts";
import type { Server, ServerOptions } from "../http/server.ts";
import type { DaemonLog } from "../ops/daemon/daemon-log.ts";
import type { DaemonControl, StoreContext } from "../ops/operation.ts";
import type { Settings } from "../ops/config/settings.ts";
import { recordSocket } from "../ops/daemon/socket-record.ts";
import { storeContext } from "./context.ts";
import { describeFault, recordFault } from "./faults.ts";

/** What requests are answered with. */
export interface ServerParts extends Required<Pick<ServerOptions, "holdsLock" | "onReplaced" | "onRequest">> {
  readonly world: CommandWorld;
  readonly settings: Settings;
  readonly log: DaemonLog;
  readonly store: StoreContext["store"];
  /** The key that tokens of runs are signed with. */
  readonly key: Uint8Array;
  readonly control: DaemonControl;
  /** An operation may have changed something. */
  readonly onChange: () => void;
  /** A run is on its way to the store: what is asked for now comes right behind it, in the same commit. null where it may come first. */
  readonly onRun: (() => void) | null;
}

/** Listens on this state folder's socket. Errors: AppError of `serve`. */
export async function openServer(parts: ServerParts): Promise<Server> {
  const { world, settings, log, store, key, control, onChange, onRun, holdsLock, onReplaced, onRequest } = parts;
  const { places } = world;
  const [{ serve }, { findEntry }, { runIn }, { callerOf }, { tellingStore }] = await Promise.all([
    import("../http/server.ts"),
    import("../ops/index.ts"),
    import("../ops/perform.ts"),
    import("../ops/runs/run-token.ts"),
    import("../store/operations.ts"),
  ]);
  /** What requests have changed so far, but for runs that they added. */
  let changes = 0;
  const told = tellingStore(store, (name) => {
    if (name === "runs.add" && onRun !== null) onRun();
    else changes += 1;
  });
  const server = await serve({
    socket: places.socket,
    version: world.build.version,
    health: control.health,
    async find(name) {
      const entry = findEntry(name);
      return entry === undefined || entry.where === "local" ? undefined : (await entry.load()).operation;
    },
    async perform(operation, input, shown) {
      const caller = callerOf(key, shown, operation.start);
      const before = changes;
      const context = await storeContext(world, told, settings, caller, false, async () => ({
        mode: control.health().mode,
      }));
      try {
        return await runIn(operation, { ...context, control } as StoreContext, input);
      } finally {
        if (changes !== before) onChange();
      }
    },
    onFault(error) {
      const { id } = recordFault(world, error);
      log.write("error", "fault", { id, fault: describeFault(error) });
      return id;
    },
    onSocketLost: (failure) =>
      failure === null
        ? log.write("warn", "socket_lost", { socket: places.socket })
        : log.write("error", "socket_failed", { message: failure.message }),
    holdsLock,
    onReplaced,
    // The short way out of a path that is too long is a folder in that for temporary files.
    removeFolder: /\/drover-\d+-[0-9a-f]+\/[^/]+$/.test(places.socket),
    onRequest,
  });
  recordSocket(places);
  return server;
}
