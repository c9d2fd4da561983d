/** What operations ask of this host: its id, output, programs, agents and worktrees. */
import { accessSync, constants, existsSync, readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { put } from "../cli/put.ts";
import type { HostWorktrees } from "../execution/worktrees/open-worktrees.ts";
import type { AgentTools, Leftovers, OutputFiles, WorktreeTools } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import type { Settings } from "../ops/config/settings.ts";

type Environment = Readonly<Record<string, string | undefined>>;

/** The id of this host, made once; empty where there is none and none is to be made. */
export async function hostIdOf(places: Places, make: boolean): Promise<string> {
  try {
    return readFileSync(places.hostFile, "utf8").trim();
  } catch {
    if (!make) return ""; // reading before the first change
  }
  const { makeId } = await import("../core/ids.ts");
  const { randomBytes } = await import("node:crypto");
  const { keepOnce } = await import("../ops/kept.ts");
  return keepOnce(places.hostFile, () => makeId("host", Date.now(), randomBytes(10)));
}

/** Names this machine without telling its own id. */
export async function machineId(): Promise<string> {
  const { createHash } = await import("node:crypto");
  const { hostname } = await import("node:os");
  let own = hostname();
  try {
    own = readFileSync("/etc/machine-id", "utf8").trim() || own;
  } catch {
    // not every system has one: the host's name has to do
  }
  return createHash("sha256").update(`drover ${own}`).digest("hex").slice(0, 32);
}

/** What attempts of this host have printed. Errors of its reads: AppError not_found `logs_gone`. */
export function outputFiles(places: Places): OutputFiles {
  const folderOf = async (folder: string) => {
    const { requireFolderName } = await import("../execution/attempt-folder.ts");
    const { AppError } = await import("../core/errors.ts");
    const path = `${places.runs}/${requireFolderName(folder)}`;
    if (!existsSync(path))
      throw new AppError("not_found", "logs_gone", "the output of this attempt is not kept on this host", {
        path,
        hint: "Logs are kept for limits.logRetentionMs, on the host that ran the attempt. `drover show` has the end of it.",
      });
    return path;
  };
  return {
    async *read({ folder, stream, tailLines, raw, isLive = false }) {
      const { readLog } = await import("../execution/logs.ts");
      const path = await folderOf(folder);
      let page = await readLog(path, stream, { raw, isLive, ...(tailLines === null ? {} : { tailLines }) });
      for (;;) {
        if (page.text !== "") yield page.text;
        if (page.atEnd) return;
        page = await readLog(path, stream, { raw, isLive, from: page.next });
      }
    },
    async *follow({ folder, stream, tailLines, raw }, ended, signal) {
      const { followLog } = await import("../execution/logs.ts");
      const path = await folderOf(folder);
      const request = { raw, ended, signal, ...(tailLines === null ? {} : { tailLines }) };
      for await (const piece of followLog(path, stream, request)) if (piece.text !== "") yield piece.text;
    },
    pathOf: (folder, stream) => `${places.runs}/${folder}/${stream === "stdout" ? "out" : "err"}`,
    async scrub(folder, text) {
      if (!existsSync(`${places.runs}/${folder}`)) return null;
      const [{ scrubOf }, { scrubText }] = await Promise.all([
        import("../execution/logs.ts"),
        import("../execution/scrub.ts"),
      ]);
      try {
        return scrubText(scrubOf(await folderOf(folder)), text);
      } catch {
        return null; // the fingerprints are damaged, or went just now
      }
    },
    async *transcript(folder) {
      const { followTranscript } = await import("../execution/agents/transcript.ts");
      yield* followTranscript(await folderOf(folder), { ended: AbortSignal.abort() });
    },
    async *followTranscript(folder, ended, signal) {
      const { followTranscript } = await import("../execution/agents/transcript.ts");
      yield* followTranscript(await folderOf(folder), { ended, signal });
    },
  };
}

/** Where a command's name leads on this host, on the path that its process will have. */
export async function findProgram(env: Environment, name: string, cwd: string, path: string): Promise<string | null> {
  const isProgram = (file: string): boolean => {
    try {
      accessSync(file, constants.X_OK);
      return statSync(file).isFile();
    } catch {
      return false; // not there, or not ours to run
    }
  };
  if (name.includes("/")) return isProgram(resolve(cwd, name)) ? resolve(cwd, name) : null;
  const { completePath } = await import("../execution/environment.ts");
  const { homedir } = await import("node:os");
  const folders = completePath(path, env["HOME"] || homedir(), env["PNPM_HOME"]).split(":");
  return folders.map((folder) => resolve(cwd, folder, name)).find(isProgram) ?? null;
}

/** Agents' command lines, as processes of this one's environment find them. */
export function agentTools(env: Environment, settings: () => Promise<Settings>): AgentTools {
  const open = async () => {
    const { openAgentTools } = await import("../execution/agent-tools.ts");
    const probeMs = (await settings()).limits.agentProbeMs;
    return openAgentTools({
      environment: env,
      find: (name) => findProgram(env, name, "/", env["PATH"] ?? ""),
      probeMs,
    });
  };
  return {
    about: async (provider) => (await import("../execution/agent-tools.ts")).describeAgent(provider),
    find: async (provider) => (await open()).find(provider),
    probeLogin: async (provider, account) => (await open()).probeLogin(provider, account),
  };
}

/** The worktrees of this host, opened once, when they are first asked for: makes and removals on one repository wait for each other. */
export function hostWorktrees(
  env: Environment,
  places: Places,
  settings: () => Promise<Settings>,
): () => Promise<HostWorktrees> {
  const open = async () => {
    const [{ openWorktrees }, { openProcessTable }, { limits }] = await Promise.all([
      import("../execution/worktrees/open-worktrees.ts"),
      import("../execution/processes.ts"),
      settings(),
    ]);
    return openWorktrees({
      root: places.worktrees,
      runs: places.runs,
      environment: env,
      limits,
      table: openProcessTable(),
      log: (message) => void put("stderr", `drover: ${message}\n`),
    });
  };
  let opened: Promise<HostWorktrees> | undefined;
  return () => (opened ??= open());
}

/** The same, for operations. */
export function worktreeTools(open: () => Promise<HostWorktrees>): WorktreeTools {
  return {
    look: async (record) => (await open()).look(record),
    remove: async (record, discard) => (await open()).remove(record, discard),
    strays: async (known) => (await open()).strays(known),
    handOff: async (record, wish) => (await open()).handOff(record, wish),
    isUnknown: async (cwd) => (await open()).isUnknown(cwd),
    lacks: async (cwd, file) => (await open()).lacks(cwd, file),
  };
}

/** What lies in the state folder and belongs to nothing any more. */
export function leftoversOf(places: Places, settings: () => Promise<Settings>): Leftovers {
  const open = () => import("../execution/leftovers.ts");
  const here = async () => {
    const { storeFileOf } = await import("../ops/config/settings.ts");
    return { runs: places.runs, storeFile: storeFileOf((await settings()).store, places) };
  };
  return {
    attemptFolders: async () => (await open()).attemptFolders(await here()),
    removeFolder: async (name) => (await open()).removeAttemptFolder(await here(), name),
    ofStore: async (keep) => (await open()).storeLeftovers(await here(), keep),
    remove: async (path) => (await open()).removeLeftover(path),
  };
}
