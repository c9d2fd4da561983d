/** What `doctor` is given to look at this host with. */
import { chmodSync, existsSync, statSync } from "node:fs";
import type { CommandWorld } from "../cli/cli.ts";
import type { Finding } from "../ops/operation.ts";

/** Everything `doctor` finds here. @param fix whether what can be mended without loss is mended */
export async function inspect(world: CommandWorld, fix: boolean): Promise<readonly Finding[]> {
  const { env, places } = world;
  const { findings } = await import("../ops/findings.ts");
  const { statfs } = await import("node:fs/promises");
  const { findTool } = await import("../execution/resident.ts");
  const { TOOLS } = await import("../execution/tools.ts");
  const { completePath } = await import("../execution/environment.ts");
  const { orphans } = await import("../execution/processes.ts");
  const { openCgroups } = await import("../execution/cgroups.ts");
  return findings(
    world,
    {
      async storeFaults() {
        const [{ parseStoreAddress }, { faultsOf }] = await Promise.all([
          import("../store/open.ts"),
          import("../store/integrity.ts"),
        ]);
        return faultsOf(parseStoreAddress((await world.settings()).store, places.state));
      },
      async freeBytes() {
        const found = await statfs(existsSync(places.state) ? places.state : "/");
        return found.bavail * found.bsize;
      },
      path: completePath(env["PATH"] ?? "", env["HOME"] ?? "/", env["PNPM_HOME"]),
      ownPath: env["PATH"] ?? "",
      findTool,
      tools: TOOLS,
      modeOf: (path) => statSync(path, { throwIfNoEntry: false })?.mode ?? null,
      closeToOthers: (path) => chmodSync(path, 0o700),
      cgroups: () => openCgroups(places.runs) !== null,
      marked: () => orphans(),
      end: (pid) => process.kill(pid, "SIGKILL"),
      strays: async (known) =>
        (await world.trees.strays(known)).map(({ record, state }) => ({ path: record.path, holds: state.holds })),
    },
    fix,
  );
}
