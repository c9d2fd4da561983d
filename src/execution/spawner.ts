import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { isAbsolute, join } from "node:path";
import { AppError, ensure } from "../core/errors.ts";
import type { EndReport, EndRequest, Judgement, Launch, Spawner } from "../core/ports.ts";
import type { AgentTarget } from "../core/target.ts";
import { adapterOf } from "./agents/index.ts";
import { findProgram, openVersions, requireTested } from "./agents/program.ts";
import { type AgentSurroundings, requireHome, surroundingsOf } from "./agents/surroundings.ts";
import type { FolderState, Prepared } from "./attempt-folder.ts";
import {
  BELLS,
  FILES,
  hasTombstone,
  isFull,
  noSpace,
  readFolder,
  readPrepared,
  requireFolderName,
  statOf,
  writeText,
  writeTombstone,
} from "./attempt-folder.ts";
import { openBells } from "./bells.ts";
import type { Cgroups } from "./cgroups.ts";
import { isCgroupOf, openCgroups } from "./cgroups.ts";
import type { EnvironmentSources } from "./environment.ts";
import { composeEnvironment, requireLaunchable, valuesToScrub } from "./environment.ts";
import { judgeFolder } from "./evidence.ts";
import type { LogCap } from "./log-cap.ts";
import { capLogs, DEFAULT_LOG_CAP } from "./log-cap.ts";
import { watchMemoryKills } from "./memory-kills.ts";
import type { ProcessTable } from "./processes.ts";
import { ATTEMPT_MARK, bootId, identify, openProcessTable } from "./processes.ts";
import { openGit, readRepository } from "./repository.ts";
import type { Backend } from "./resident.ts";
import { findTool, openResident } from "./resident.ts";
import { fingerprint } from "./scrub.ts";
import { resolveSecrets } from "./secrets.ts";
import type { ShimRequest } from "./shim.ts";
import { shimText } from "./shim.ts";
import { endTree } from "./tree.ts";
import { commitAccess } from "./worktrees/commit-access.ts";

export interface SpawnerOptions {
  /** Where attempts have their folders; absolute. Made when missing. */
  readonly runsFolder: string;
  /** One line for the daemon's log. */
  readonly log: (message: string) => void;
  /** The shell of the resident process and the shims. */
  readonly shell?: string;
  readonly backend?: Backend;
  /** Whether each attempt gets a cgroup of its own where that is allowed. */
  readonly cgroups?: boolean;
  /** The daemon's own environment. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Limit of a `cmd:` secret. */
  readonly secretTimeoutMs?: number;
  /** An attempt without a ticket this long after it was asked means that the resident process is stuck. */
  readonly stuckMs?: number;
  /** How long an agent's program may take to say its version. */
  readonly agentProbeMs?: number;
  readonly logCap?: Partial<LogCap>;
  /** Where processes are looked up: `ps` where there is no /proc. */
  readonly processes?: ProcessTable["backend"];
}

/** The status that SIGKILL leaves by the shell's convention. */
const KILLED = 137;
const SECRET_TIMEOUT_MS = 30_000;
const STUCK_MS = 5_000;
const AGENT_PROBE_MS = 20_000;
/** How long a count of all processes ever made is good enough to begin at. */
const FORKS_MS = 250;

/** Starts attempts by a resident process and shims that outlive us; `attempt-folder.ts` names the files. */
export function openSpawner(options: SpawnerOptions): Spawner {
  const { runsFolder, log, shell = "/bin/sh", environment = process.env } = options;
  const { secretTimeoutMs = SECRET_TIMEOUT_MS, stuckMs = STUCK_MS, agentProbeMs = AGENT_PROBE_MS } = options;
  ensure(isAbsolute(runsFolder), "the runs folder is absolute");
  const logCap: LogCap = { ...DEFAULT_LOG_CAP, ...options.logCap };
  const boot = bootId();
  const table = openProcessTable(options.processes);
  try {
    mkdirSync(runsFolder, { recursive: true, mode: 0o700 });
  } catch (error) {
    if (isFull(error)) throw noSpace(runsFolder, error);
    throw new AppError("unreachable", "state_unusable", `the folder of the runs cannot be used: ${runsFolder}`, {
      path: runsFolder,
      hint: "Look at what is in its place and who may write there: drover doctor.",
      cause: error,
    });
  }
  const shimFile = shimFileOf(runsFolder, table.backend === "proc");
  /** Written when it is missing and there is room: on a full disk a daemon still comes up, adopts and settles. */
  const shim = (): string => {
    try {
      if (!hasTombstone(runsFolder)) writeTombstone(runsFolder);
      return writeShim(shimFile);
    } catch (error) {
      throw isFull(error) ? noSpace(runsFolder, error) : error;
    }
  };
  try {
    shim();
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log(`${error.message}: nothing can start`);
  }
  const fallocate = findTool("fallocate");
  const cgroups: Cgroups | null = options.cgroups === false ? null : openCgroups(runsFolder);
  const versionOf = openVersions();
  const umask = process.umask().toString(8).padStart(4, "0");

  const replacedListeners: (() => void)[] = [];
  const resident = openResident({
    shell,
    backend: options.backend,
    onDeath: () => {
      log("the resident spawner ended and is replaced; attempts that were asked for are judged again");
      for (const listener of replacedListeners) listener();
    },
  });

  /** Requests between `prepare` and `ask`: secrets are in them, so they are in memory only. */
  const prepared = new Map<string, ShimRequest>();
  /** Asked and not yet seen to have a ticket. */
  const asked = new Map<string, { readonly generation: number; readonly at: number }>();
  const trimmedAt = new Map<string, number>();
  const trimming = new Map<string, Promise<void>>();
  /** Processes that had ever been made when an attempt was asked for; what a sweep looks at begins there. */
  const forksAtAsk = new Map<string, number>();
  const cgroupOf = new Map<string, string>();
  const memoryKills = watchMemoryKills();
  let counted: { readonly forks: number | null; readonly at: number } | null = null;
  /** As they were a moment ago: a sweep that begins earlier misses nothing, and the kernel takes long to count. */
  const forksLately = (): number | null => {
    if (counted === null || performance.now() - counted.at > FORKS_MS)
      counted = { forks: table.forks(), at: performance.now() };
    return counted.forks;
  };

  const pathOf = (folder: string) => join(runsFolder, requireFolderName(folder));
  const bellListeners: ((folder: string) => void)[] = [];
  const bells = openBells(join(runsFolder, BELLS), log, (folder) => {
    for (const listener of bellListeners) listener(folder);
  });

  const cgroupIn = (folder: string, { run }: FolderState): string | null =>
    run !== null && run.cgroup !== null && isCgroupOf(run.cgroup, folder) ? run.cgroup : null;
  const release = (folder: string, cgroup: string | null): void => {
    if (cgroup !== null) cgroups?.remove(cgroup);
    cgroupOf.delete(folder);
    forksAtAsk.delete(folder);
  };

  const endOf = async ({ folder, mark, graceMs }: EndRequest, before: FolderState): Promise<EndReport> => {
    const path = pathOf(folder);
    const cgroup = cgroupIn(folder, before);
    const reaper = before.run?.reaper === true;
    const forks = forksAtAsk.get(folder);
    const since = forks === undefined || before.shim === null ? null : { pid: before.shim.pid, forks };
    // A dead shim's session is looked at only where its start time can tell a reused pid from it.
    const alive = identify(before.shim, path, table);
    const leader = alive ?? (before.shim?.started == null ? null : before.shim);
    const tree = {
      leader,
      since,
      recorder: true,
      own: before.run?.readers ?? [],
      mark: `${ATTEMPT_MARK}=${mark}`,
      cgroup,
      reaper,
    };
    const report = await endTree(tree, graceMs, table);
    if (report.left === 0) release(folder, cgroup);
    // The shim's own last word: as subreaper it had no child left when it ended.
    const proved = report.proof === "proved_empty" || (reaper && report.left === 0 && readFolder(path).run?.left === 0);
    return { ...report, proof: proved ? "proved_empty" : "not_proved" };
  };

  /** What an earlier attempt began with at the same place; null when it is not known any more. */
  const begunWith = (folder: string | undefined, cwd: string): Prepared["repository"] => {
    try {
      const before = folder === undefined ? null : readPrepared(pathOf(folder));
      return before?.cwd === cwd ? before.repository : null;
    } catch (error) {
      if (error instanceof AppError) return null; // damaged: as good as gone
      throw error;
    }
  };

  /** The command line of an agent, for the program that its name leads to now. */
  async function agentLine(launch: Launch, target: AgentTarget, cwd: string, composed: Record<string, string>) {
    const adapter = adapterOf(target.provider);
    const name = target.command?.[0] ?? adapter.program ?? target.provider;
    const program = findProgram(name, composed["PATH"] ?? "", cwd);
    if (program === null)
      throw new AppError("not_found", "agent_not_found", `the program ${name} of ${target.provider} is not found`, {
        hint: `${adapter.install ?? "Install it"} where the daemon's PATH leads; \`drover agent ls\` says what is found.`,
      });
    if (adapter.tested !== null && !target.untested) {
      const probe = { environment: composed, cwd, timeoutMs: agentProbeMs, table };
      requireTested(adapter, program, await versionOf(adapter, program, probe), target.untested);
    }
    return adapter.build({
      target,
      program,
      session: launch.agent?.session ?? null,
      environment: composed,
      isRoot: process.getuid?.() === 0,
      commit: target.permission === "workspace-write" && statOf(cwd) !== null ? commitAccess(cwd) : null,
    });
  }

  return {
    bootId: boot,

    async prepare(launch) {
      const path = pathOf(launch.folder);
      const { target } = launch;
      const cwd = launch.cwd ?? target.cwd;
      if (!isAbsolute(cwd))
        throw new AppError("invalid", "env_invalid", `the working directory ${JSON.stringify(cwd)} is not absolute`, {
          path: "cwd",
        });
      const variables: Readonly<Record<string, string>> = {
        ...launch.variables,
        DROVER_OUTPUT: join(path, FILES.output),
      };
      const own = surroundingsFor(launch);
      const open: EnvironmentSources = {
        daemon: environment,
        target: own,
        secrets: {},
        variables: { ...variables, ...own.variables },
        secretNames: own.secretNames,
      };
      const secrets = await resolveSecrets(own.secrets, {
        daemon: environment,
        cwd,
        environment: composeEnvironment({ ...open, variables: {} }),
        shell,
        timeoutMs: secretTimeoutMs,
        table,
      });
      const sources: EnvironmentSources = { ...open, secrets };
      const plain = composeEnvironment(sources);
      const line =
        target.kind === "command" ? { argv: target.argv, env: {} } : await agentLine(launch, target, cwd, plain);
      const composed = { ...plain, ...line.env };
      requireLaunchable(line.argv, composed);
      const { DROVER_RUN_TOKEN: _token, ...told } = variables;
      const wantsRepository = target.expect.some(
        (expectation) => expectation === "changes" || expectation === "commit",
      );
      const repository =
        wantsRepository && statOf(cwd) !== null
          ? (begunWith(launch.since, cwd) ??
            (await readRepository(openGit(cwd, composeEnvironment({ ...open, variables: {} }), table))))
          : null;
      const memory: Prepared = { cwd, variables: told, repository };
      const shimPath = shim();
      makeFolder(path, launch, target.expect.length > 0 ? memory : null, valuesToScrub(sources));
      const cgroup = cgroups?.make(launch.folder) ?? null;
      if (cgroup !== null) cgroupOf.set(launch.folder, cgroup);
      const argv = [
        shimPath,
        path,
        cwd,
        launch.input.length > 0 ? join(path, FILES.stdin) : "/dev/null",
        umask,
        cgroup ?? "-",
        "-",
        target.output,
        ...line.argv,
      ];
      prepared.set(launch.folder, { environment: composed, argv });
    },

    async ask(folder) {
      const request = prepared.get(folder);
      ensure(request !== undefined, `attempt ${folder} was prepared by this process and not yet asked for`);
      prepared.delete(folder);
      const forks = forksLately();
      if (forks !== null) forksAtAsk.set(folder, forks);
      memoryKills.sample();
      resident.send(request);
      asked.set(folder, { generation: resident.generation(), at: performance.now() });
    },

    async judge({ folder, bootId: askedIn, plant }) {
      bells.check();
      const judgement: Judgement = judgeFolder(pathOf(folder), askedIn === boot, plant, table);
      if (judgement.kind === "asked") return judgement;
      const wait = asked.get(folder);
      asked.delete(folder);
      if (judgement.kind === "ended" && judgement.exit === KILLED && memoryKills.explains(folder))
        return { ...judgement, outOfMemory: true };
      if (judgement.kind !== "never_started") return judgement;
      prepared.delete(folder);
      forksAtAsk.delete(folder);
      const cgroup = cgroupOf.get(folder);
      if (cgroup !== undefined) cgroups?.remove(cgroup);
      cgroupOf.delete(folder);
      if (wait !== undefined && wait.generation === resident.generation() && performance.now() - wait.at >= stuckMs) {
        log(`the resident spawner started nothing for ${Math.round(performance.now() - wait.at)} ms and is replaced`);
        resident.replace();
      }
      return judgement;
    },

    end: (request) => endOf(request, readFolder(pathOf(request.folder))),

    async sweep(request) {
      const { folder } = request;
      const found = readFolder(pathOf(folder));
      // The shim's last word as subreaper: no child of its own was left, so nothing of the tree is.
      if (!(found.run !== null && found.run.exit !== null && found.run.reaper && found.run.left === 0))
        return endOf(request, found);
      release(folder, cgroupIn(folder, found));
      return { killed: 0, left: 0, proof: "proved_empty" };
    },

    measure(folder) {
      memoryKills.sample();
      const path = pathOf(folder);
      const out = statOf(join(path, FILES.stdout));
      const err = statOf(join(path, FILES.stderr));
      // Sizes alone miss what reopens an output and empties it: the times of the last writes are only compared with themselves.
      return {
        stdoutBytes: out?.size ?? 0,
        stderrBytes: err?.size ?? 0,
        mark: (out?.mtimeMs ?? 0) + (err?.mtimeMs ?? 0) + (out?.size ?? 0) + (err?.size ?? 0),
      };
    },

    async trim(folder, final) {
      const path = pathOf(folder);
      await trimming.get(folder); // one at a time; the last one is the caller's
      const last = trimmedAt.get(folder);
      if (!final && last !== undefined && performance.now() - last < logCap.everyMs) return;
      if (final) trimmedAt.delete(folder);
      else trimmedAt.set(folder, performance.now());
      const work = capLogs(path, logCap, final, fallocate).finally(() => trimming.delete(folder));
      trimming.set(folder, work);
      await work;
    },

    onBell: (listener) => {
      bellListeners.push(listener);
    },
    onReplaced: (listener) => {
      replacedListeners.push(listener);
    },

    async close() {
      bells.close();
      prepared.clear();
      await resident.close();
      cgroups?.close();
    },
  };
}

/** What a process gets besides the allow-list: the target's own, and for an agent what its account has. Errors: `env_invalid`. */
function surroundingsFor({ target, agent }: Launch): AgentSurroundings {
  if (target.kind === "command") return { ...target, variables: {}, secretNames: [] };
  const account = agent?.account ?? null;
  if (account !== null && account.home !== null) requireHome(account.home);
  return surroundingsOf(adapterOf(target.provider), account, target.account === "default", target);
}

/** Makes the folder of an attempt and everything in it that is there before the ask. Errors: `no_space`. */
function makeFolder(path: string, { input }: Launch, memory: Prepared | null, secrets: readonly string[]): void {
  mkdirNew(path);
  try {
    const put = (file: string, content: string | Uint8Array) =>
      writeFileSync(join(path, file), content, { flag: "wx", mode: 0o600 });
    if (input.length > 0) put(FILES.stdin, input);
    if (secrets.length > 0) put(FILES.scrub, JSON.stringify(fingerprint(secrets)));
    if (memory !== null) put(FILES.prepared, JSON.stringify(memory));
  } catch (error) {
    rmSync(path, { recursive: true, force: true });
    throw isFull(error) ? noSpace(path, error) : error;
  }
}

function mkdirNew(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 }); // not recursive: a folder that exists is another attempt's
  } catch (error) {
    throw isFull(error) ? noSpace(path, error) : error;
  }
}

interface ShimFile {
  readonly path: string;
  readonly text: string;
  readonly bytes: number;
}

/** Where the shim outlives us. Its name holds its digest: a newer drover never changes the text under an older one's shims. */
function shimFileOf(runsFolder: string, proc: boolean): ShimFile {
  const text = shimText({ proc, cat: findTool("cat") ?? "cat", mkfifo: findTool("mkfifo") ?? "mkfifo" });
  const name = `shim-${createHash("sha256").update(text).digest("hex").slice(0, 16)}.sh`;
  return { path: join(runsFolder, name), text, bytes: Buffer.byteLength(text) };
}

function writeShim({ path, text, bytes }: ShimFile): string {
  if (statOf(path)?.size === bytes) return path;
  writeText(path, text);
  return path;
}
