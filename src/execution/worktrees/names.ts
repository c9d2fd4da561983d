/** Names of trees and of their branches. */
import { basename, join } from "node:path";
import { shortId } from "../../core/ids.ts";

/** Above all branches of ours, and above all refs of ours that are no branches. */
const BRANCHES = "drover";
export const RESCUE_REFS = "refs/drover/rescue";

/** Longest part of a name that is taken from a loop or a folder. */
const NAME_CHARACTERS = 60;
/** Names that are tried when the first is taken. */
const NAMES = 50;

/** A loop's name as one part of a ref and of a path: what neither takes becomes a dash. */
export function safeName(name: string): string {
  const safe = name
    .normalize("NFC")
    .replaceAll(/[^\p{L}\p{N}._-]+/gu, "-")
    .replaceAll(/\.{2,}/g, ".")
    .slice(0, NAME_CHARACTERS)
    // Twice: what is cut off may uncover the other.
    .replaceAll(/^[.-]+|[.-]+$/g, "")
    .replace(/(?:\.lock)+$/i, "")
    .replaceAll(/^[.-]+|[.-]+$/g, "");
  // A cut in the middle of a pair leaves half a character.
  return safe.replaceAll(/\p{Cs}/gu, "") || "run";
}

/** The folder of a run's tree. The whole id: two runs of one loop never share a folder. */
export const placeOf = (root: string, { runId, name, cwd }: { runId: string; name: string; cwd: string }): string =>
  join(root, safeName(basename(cwd)), `${safeName(name)}-${safeName(runId)}`);

/**
 * Names for a run's branch, best first: `drover/<loop>/<short id>`, flatter where a branch that exists is in the way
 * (refs are files and folders: `drover` and `drover/x` cannot both be), numbered where the name is taken.
 * @param existing every branch, without `refs/heads/`
 */
export function branchNames(name: string, runId: string, existing: readonly string[]): readonly string[] {
  const [loop, short] = [safeName(name), safeName(shortId(runId))];
  const taken = new Set(existing);
  const inTheWay = (branch: string): boolean => {
    const parts = branch.split("/");
    return parts.some((_, i) => i > 0 && taken.has(parts.slice(0, i).join("/")));
  };
  const above = new Set(existing.flatMap((one) => one.split("/").map((_, i, parts) => parts.slice(0, i).join("/"))));
  const free: string[] = [];
  for (let number = 1; number <= NAMES; number++) {
    const last = number === 1 ? short : `${short}-${number}`;
    for (const branch of [`${BRANCHES}/${loop}/${last}`, `${BRANCHES}/${loop}-${last}`, `${BRANCHES}-${loop}-${last}`])
      if (!taken.has(branch) && !above.has(branch) && !inTheWay(branch)) free.push(branch);
  }
  return free;
}

/** The patterns of `for-each-ref` that list every branch that can be in the way of ours. */
export const BRANCH_PATTERNS = [
  `refs/heads/${BRANCHES}`,
  `refs/heads/${BRANCHES}-*`,
  `refs/heads/${BRANCHES}-*/**`,
] as const;
