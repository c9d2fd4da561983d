/** Runs a real command line as its adapter says, in a home of its own, with nothing of drover in between. */
import { spawn } from "node:child_process";
import { accessSync, constants, mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { AgentVerdict } from "../../src/core/agent.ts";
import { defaultLimits } from "../../src/core/limits.ts";
import { agentTarget, type Permission } from "../../src/core/target.ts";
import { adapterOf } from "../../src/execution/agents/index.ts";
import { frameLines } from "../../src/execution/agents/lines.ts";
import { commitAccess } from "../../src/execution/worktrees/commit-access.ts";
import { processesOf, until } from "../e2e/drover.ts";
import { programs } from "./installed.ts";
import { endPids } from "../children.ts";

/**
 * A folder that a workspace does not reach and this user can write. Codex lets its agents write in the system's folder for
 * temporary files, so a home or a clone below that is none.
 */
export function folderOutside(): string {
  const temporary = realpathSync(tmpdir());
  const isOutside = (folder: string): boolean => {
    try {
      accessSync(folder, constants.W_OK);
      return !`${realpathSync(folder)}/`.startsWith(`${temporary}/`) && !`${realpathSync(folder)}/`.startsWith("/tmp/");
    } catch {
      return false; // not there, or not ours to write
    }
  };
  const found = [process.env["HOME"] ?? "", "/var/tmp", "/dev/shm", import.meta.dirname].find(
    (one) => one !== "" && isOutside(one),
  );
  if (found === undefined) throw new Error("there is no folder that is outside of the one for temporary files");
  return found;
}

export type RealProvider = "claude" | "codex";

/** No agent of these tests takes longer; what does hangs. */
const PATIENCE_MS = 90_000;

export interface RealRun {
  /** null: a signal ended it. */
  readonly exit: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its JSON lines. */
  readonly events: readonly Readonly<Record<string, unknown>>[];
  readonly stderr: string;
  readonly ms: number;
  /** What its adapter's reader makes of it. */
  readonly verdict: AgentVerdict;
  /** Processes that carry its surroundings and are still there. */
  readonly left: readonly number[];
}

export interface RealOrder {
  /** From `ModelServer.base`. */
  readonly base: string;
  readonly prompt: string;
  readonly permission?: Permission;
  readonly session?: { readonly id: string; readonly resume: boolean; readonly fork?: boolean };
  /** Whether Claude Code has a token of a login rather than a key. */
  readonly token?: boolean;
  /** Over what the adapter sets. */
  readonly env?: Readonly<Record<string, string>>;
  /** Sends TERM to its group when it settles. */
  readonly stop?: Promise<unknown>;
}

export interface RealHome {
  readonly folder: string;
  /** Where it works. */
  readonly cwd: string;
  run(provider: RealProvider, order: RealOrder): Promise<RealRun>;
  close(): void;
}

/** What leads each provider to the server, and the variables of its login. */
export const surroundingsOf = (provider: RealProvider, base: string, token = false): Record<string, string> =>
  provider === "codex"
    ? { OPENAI_BASE_URL: `${base}/v1`, CODEX_API_KEY: "sk-openai-0123456789abcdef" }
    : {
        ANTHROPIC_BASE_URL: base,
        ...(token
          ? { CLAUDE_CODE_OAUTH_TOKEN: "sk-ant-oat01-0123456789abcdef" }
          : { ANTHROPIC_API_KEY: "sk-ant-0123456789abcdef" }),
      };

/** A home for the accounts of both, and a folder to work in; `close` ends what is left. */
export function openRealHome(): RealHome {
  const folder = mkdtempSync(join(tmpdir(), "drover-real-"));
  const cwd = join(folder, "work");
  mkdirSync(cwd);
  return {
    folder,
    cwd,
    async run(provider, { base, prompt, permission = "workspace-write", session, token, env: more = {}, stop }) {
      const adapter = adapterOf(provider);
      const home = join(folder, provider);
      mkdirSync(home, { recursive: true });
      const target = agentTarget.parse({
        kind: "agent",
        provider,
        prompt: { digest: "0".repeat(64), bytes: Buffer.byteLength(prompt), head: "" },
        permission,
        model: provider === "codex" ? "gpt-fake" : null,
        cwd,
      });
      const env: Record<string, string> = {
        PATH: process.env["PATH"] ?? "/usr/bin:/bin",
        HOME: folder,
        LANG: "C.UTF-8",
        TZ: "UTC",
        [adapter.homeVariable ?? "HOME"]: home,
        ...adapter.off,
        ...surroundingsOf(provider, base, token),
        ...more,
      };
      const order = {
        target,
        program: join(programs, provider),
        session: session ?? null,
        environment: env,
        isRoot: process.getuid?.() === 0,
        commit: commitAccess(cwd),
      };
      const { argv, env: own } = adapter.build(order);
      const startedAt = performance.now();
      const child = spawn(argv[0], argv.slice(1), {
        cwd,
        env: { ...env, ...own },
        stdio: ["pipe", "pipe", "pipe"],
        detached: true,
      });
      const group = -(child.pid ?? 0);
      const reader = adapter.start({ zone: "UTC", limits: defaultLimits });
      const framing = frameLines({ lineBytes: defaultLimits.lineBytes, nestedTextBytes: 4096, seal: (text) => text });
      const events: Readonly<Record<string, unknown>>[] = [];
      const take = (framed: ReturnType<typeof framing.end>) => {
        for (const one of framed) {
          if (one.kind !== "line") continue;
          if (one.line.event !== null) events.push(one.line.event);
          reader.line(one.line, Date.now());
        }
      };
      let stderr = "";
      child.stdout.on("data", (piece: Buffer) => take(framing.push(piece)));
      child.stderr.setEncoding("utf8").on("data", (piece: string) => (stderr += piece));
      child.stdin.on("error", () => {}); // it may end without reading
      child.stdin.end(prompt);
      const timer = setTimeout(() => process.kill(group, "SIGKILL"), PATIENCE_MS);
      void stop?.then(() => process.kill(group, "SIGTERM"));
      const [exit, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((done) =>
        child.once("close", (...ended) => done(ended)),
      );
      clearTimeout(timer);
      take(framing.end());
      const verdict = reader.finish({ exit, stderrTail: stderr.slice(-4096), now: Date.now() });
      return { exit, signal, events, stderr, ms: performance.now() - startedAt, verdict, left: processesOf(folder) };
    },
    close() {
      endPids(processesOf(folder));
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Waits until nothing of a home is alive. */
export const gone = (folder: string): Promise<unknown> =>
  until(() => processesOf(folder).length === 0, `no process of ${folder} is left`);
