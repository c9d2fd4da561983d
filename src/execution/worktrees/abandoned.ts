/** Git that outlived the drover that ran it: it works on in a tree that the next one makes anew. */
import { realpathSync } from "node:fs";
import { sep } from "node:path";
import { endAbandoned } from "../errand.ts";
import type { ProcessTable } from "../processes.ts";
import { OUR_GIT } from "../repository.ts";
import { workingFolders } from "./occupants.ts";
import { isThere } from "./place.ts";

/** From TERM, at which git takes its locks away, to KILL. */
const GRACE_MS = 2_000;

/** Ends every git of a drover that died, with its filters and helpers, that works below `root` or was told of a folder there. */
export async function endAbandonedGit(
  root: string,
  table: ProcessTable,
  log: (message: string) => void,
): Promise<void> {
  const below = (isThere(root) ? realpathSync(root) : root) + sep;
  const folders = await workingFolders(table).catch(() => []); // then its words alone say where it works
  const working = new Map(folders.map(({ pid, path }) => [pid, path + sep]));
  const reports = await endAbandoned(table, GRACE_MS, ({ pid }) => {
    const words = table.words(pid);
    return words.includes(OUR_GIT) && (words.includes(below) || (working.get(pid) ?? "").startsWith(below));
  });
  const left = reports.reduce((sum, report) => sum + report.left, 0);
  if (reports.length > 0)
    log(
      `${reports.length} calls of git that an earlier drover left in its worktrees are ended${left === 0 ? "" : `; ${left} processes are still there`}`,
    );
}
