import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import type { ShimRequest } from "./shim.ts";
import { CLOSE_ALL, NODE_RESIDENT, perlLauncher, RESIDENT_PRELUDE, requestText } from "./shim.ts";

/** How attempts are detached from us. `shell`: `sh -s` with `setsid -f`; `perl`: `sh -s` with perl, the shim a subreaper; `node`: a lean Node child. */
export type Backend = "shell" | "perl" | "node";

/** The small process that starts attempts. One generation lives at a time; a dead one is replaced at the next request. */
export interface Resident {
  readonly backend: Backend;
  /** Counts the processes so far. */
  generation(): number;
  /** Writes a request. Returning is no evidence that it was read. */
  send(request: ShimRequest): void;
  /** Ends a stuck one; what is in its pipe is gone with it. */
  replace(): void;
  /** No more requests; those in the pipe are still started. */
  close(): Promise<void>;
}

const TOOL_FOLDERS = ["/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin"];
/** What the resident process has of an environment: a request brings everything else. */
const RESIDENT_ENVIRONMENT = { PATH: TOOL_FOLDERS.join(":") };
const CLOSE_LIMIT_MS = 1_000;

/** The absolute path of a system tool: in a request, `PATH` is the target's and would change what is found. */
export function findTool(name: string): string | null {
  for (const folder of TOOL_FOLDERS) {
    try {
      accessSync(`${folder}/${name}`, constants.X_OK);
      return `${folder}/${name}`;
    } catch {
      // not in this one
    }
  }
  return null;
}

/** `setsid` with `-f` (busybox has it without); null where it is missing. */
function findSetsid(): string | null {
  const setsid = findTool("setsid");
  const works =
    setsid !== null &&
    spawnSync(setsid, ["-f", "/bin/true"], { stdio: "ignore", env: {}, timeout: 5_000 }).status === 0;
  return works ? setsid : null;
}

/** What this system has: the first of shell, node on Linux; perl, node elsewhere. */
function choose(wanted: Backend | undefined): { backend: Backend; launcher: string } {
  const setsid = wanted === undefined || wanted === "shell" ? findSetsid() : null;
  const perl =
    wanted === "perl" || (wanted === undefined && setsid === null && process.platform === "darwin")
      ? findTool("perl")
      : null;
  if (setsid !== null) return { backend: "shell", launcher: `'${setsid}' -f` };
  if (perl !== null) return { backend: "perl", launcher: perlLauncher(perl, process.platform, process.arch) };
  return { backend: "node", launcher: "" };
}

/**
 * Opens the resident process of this system, or the one that is asked for where it can be had.
 * @param onDeath called when it ended although nobody closed it
 */
export function openResident(options: {
  readonly shell: string;
  readonly backend?: Backend | undefined;
  readonly onDeath: () => void;
}): Resident {
  const { shell, onDeath } = options;
  const { backend, launcher } = choose(options.backend);
  const bash = findTool("bash");
  let child: ChildProcess | null = null;
  let generation = 0;
  let closed = false;

  const start = (): ChildProcess => {
    const words = backend === "node" ? [process.execPath, "-e", NODE_RESIDENT] : [shell, "-s"];
    const [file = shell, ...rest] = bash === null ? words : [bash, ...CLOSE_ALL, ...words];
    // A session of its own: Ctrl-C at the daemon's terminal is not for it.
    const started = spawn(file, rest, {
      cwd: "/",
      env: RESIDENT_ENVIRONMENT,
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    });
    generation++;
    let gone = false;
    const die = () => {
      if (gone) return;
      gone = true;
      if (child === started) child = null;
      if (!closed) onDeath();
    };
    started.on("exit", die);
    started.on("error", die);
    // EPIPE: it is dead, and `exit` says so; unhandled it would end the daemon.
    started.stdin?.on("error", die);
    started.unref();
    if (started.stdin !== null && "unref" in started.stdin && typeof started.stdin.unref === "function")
      started.stdin.unref();
    if (backend !== "node") started.stdin?.write(RESIDENT_PRELUDE);
    return started;
  };

  return {
    backend,
    generation: () => generation,
    send(request) {
      child ??= start();
      const text =
        backend === "node" ? `${JSON.stringify({ shell, ...request })}\n` : requestText(launcher, shell, request);
      child.stdin?.write(text);
    },
    replace() {
      child?.kill("SIGKILL"); // stopped ones hear nothing else
    },
    async close() {
      closed = true;
      const last = child;
      if (last === null || last.exitCode !== null) return;
      await new Promise<void>((resolve) => {
        const limit = setTimeout(resolve, CLOSE_LIMIT_MS);
        last.once("exit", () => {
          clearTimeout(limit);
          resolve();
        });
        last.stdin?.end();
      });
    },
  };
}
