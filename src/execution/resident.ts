import type { ChildProcess } from "node:child_process";
import { spawn, spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { BrokenAssert } from "../core/errors.ts";
import type { ShimRequest } from "./shim.ts";
import { CLOSE_ALL, NODE_RESIDENT, perlResident, RESIDENT_PRELUDE, requestFrame, requestText } from "./shim.ts";

/** How attempts are detached from us. `perl`: a perl process, on Linux with the shim a subreaper; `shell`: `sh -s` with `setsid -f`; `node`: a lean Node child. */
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

interface Way {
  readonly backend: Backend;
  /** The program and its arguments. */
  readonly words: readonly string[];
  /** What it is told first. */
  readonly prelude: string;
  request(shell: string, request: ShimRequest): string | Buffer;
}

const ways: Readonly<Record<Backend, (shell: string) => Way | null>> = {
  perl() {
    const perl = findTool("perl");
    const script = perlResident(process.platform, process.arch);
    return perl === null ? null : { backend: "perl", words: [perl, "-e", script], prelude: "", request: requestFrame };
  },
  shell(shell) {
    const setsid = findSetsid();
    if (setsid === null) return null;
    const request = (own: string, one: ShimRequest) => requestText(`'${setsid}' -f`, own, one);
    return { backend: "shell", words: [shell, "-s"], prelude: RESIDENT_PRELUDE, request };
  },
  node: () => ({
    backend: "node",
    words: [process.execPath, "-e", NODE_RESIDENT],
    prelude: "",
    request: (shell, request) => `${JSON.stringify({ shell, ...request })}\n`,
  }),
};

/** The first way that this system has: with perl an end needs no look at all processes, and Node takes the most memory. */
function choose(shell: string, wanted: Backend | undefined): Way {
  const order: readonly Backend[] = wanted === undefined ? ["perl", "shell", "node"] : [wanted, "node"];
  for (const backend of order) {
    const way = ways[backend](shell);
    if (way !== null) return way;
  }
  throw new BrokenAssert("a Node child can always be had");
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
  const { backend, words, prelude, request: said } = choose(shell, options.backend);
  const bash = findTool("bash");
  let child: ChildProcess | null = null;
  let generation = 0;
  let closed = false;

  const start = (): ChildProcess => {
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
    if (prelude !== "") started.stdin?.write(prelude);
    return started;
  };

  return {
    backend,
    generation: () => generation,
    send(request) {
      child ??= start();
      child.stdin?.write(said(shell, request));
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
