/** Where an agent's program is and which version: looked at anew at each start, since programs update themselves. */
import { accessSync, constants, statSync } from "node:fs";
import { resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { ownOutput, runErrand } from "../errand.ts";
import type { ProcessTable } from "../processes.ts";
import { type Adapter, isTested, versionOf } from "./adapter.ts";

/** The file that a name leads to on a PATH; null when there is none that may be executed. */
export function findProgram(name: string, path: string, cwd: string): string | null {
  const candidates = name.includes("/")
    ? [resolve(cwd, name)]
    : path
        .split(":")
        .filter((folder) => folder !== "")
        .map((folder) => resolve(cwd, folder, name));
  return candidates.find(isProgram) ?? null;
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false; // not there, a link to nowhere, or not ours to run
  }
}

export interface VersionProbe {
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly timeoutMs: number;
  readonly table: ProcessTable;
}

/** What it says its version is; null when it says none. Remembered for as long as the file is the same. */
export type VersionOf = (adapter: Adapter, program: string, probe: VersionProbe) => Promise<string | null>;

export function openVersions(): VersionOf {
  const known = new Map<string, { readonly stamp: string; readonly version: Promise<string | null> }>();
  return async (adapter, program, probe) => {
    const stat = statSync(program, { throwIfNoEntry: false, bigint: true });
    const stamp = `${stat?.ino} ${stat?.size} ${stat?.mtimeNs}`;
    const last = known.get(program);
    // Starts that come together ask once.
    if (last?.stamp === stamp) return last.version;
    const version = ask(adapter, program, probe);
    const asked = { stamp, version };
    known.set(program, asked);
    // It may just have been replaced: the next start asks again.
    if ((await version) === null && known.get(program) === asked) known.delete(program);
    return version;
  };
}

async function ask(adapter: Adapter, program: string, probe: VersionProbe): Promise<string | null> {
  const end = await runErrand(
    {
      argv: [program, ...adapter.versionArgs],
      cwd: probe.cwd,
      environment: probe.environment,
      timeoutMs: probe.timeoutMs,
      keepBytes: 65_536,
      keep: "head",
    },
    probe.table,
  );
  return end.exit === 0 ? versionOf(ownOutput(end)?.toString() ?? "") : null;
}

/** Refuses a version that was not tried. Errors: AppError `agent_untested`, `agent_not_found` when it says none. */
export function requireTested(adapter: Adapter, program: string, version: string | null, untested: boolean): void {
  if (untested || adapter.tested === null) return;
  if (version === null)
    throw new AppError("unreachable", "agent_not_found", `${program} does not say its version, so it may not work`, {
      hint: `Run it: ${program} ${adapter.versionArgs.join(" ")}`,
    });
  if (isTested(adapter, version)) return;
  const { min, below } = adapter.tested;
  throw new AppError(
    "invalid",
    "agent_untested",
    `${adapter.provider} ${version} was not tried: tested from ${min} to below ${below}`,
    { hint: "Install a version that was tried, or give --untested." },
  );
}
