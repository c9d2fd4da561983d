import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { processesOf, until } from "../e2e/drover.ts";
import { endPids } from "../children.ts";

const program = resolve(fileURLToPath(import.meta.url), "../stand-in.mjs");
let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-stand-in-"));
  for (const name of ["claude", "codex", "other"]) symlinkSync(program, join(folder, name));
});
afterAll(() => {
  endPids(processesOf(folder));
  rmSync(folder, { recursive: true });
});

interface Shown {
  readonly exit: number | null;
  readonly signal: string | null;
  readonly out: Buffer;
  readonly err: Buffer;
  readonly events: readonly Record<string, unknown>[];
}

/** Runs the stand-in under a name. `signal` is sent when something was printed, KILL when it printed `kill`. */
function act(
  name: string,
  mode: string,
  {
    args = [],
    env = {},
    signal,
    kill,
  }: { args?: string[]; env?: Record<string, string>; signal?: NodeJS.Signals; kill?: string } = {},
): Promise<Shown> {
  const child = spawn(join(folder, name), args, {
    env: { PATH: process.env["PATH"] ?? "", TZ: "UTC", HOME: folder, ...env },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on("data", (piece: Buffer) => {
    if (out.push(piece) === 1 && signal !== undefined) child.kill(signal);
    if (kill !== undefined && piece.includes(kill)) child.kill("SIGKILL");
  });
  child.stderr.on("data", (piece: Buffer) => err.push(piece));
  child.stdin.on("error", () => {}); // it may end without reading
  child.stdin.end(`please\nMODE=${mode}\n`);
  return new Promise((done) => {
    child.once("exit", (exit, by) => {
      // What it left behind may hold its outputs: what is there by now is all of its own.
      setImmediate(() => {
        const bytes = Buffer.concat(out);
        const events = bytes
          .toString()
          .split("\n")
          .filter((line) => line.startsWith("{") && line.endsWith("}"))
          .map((line) => JSON.parse(line) as Record<string, unknown>);
        done({ exit, signal: by, out: bytes, err: Buffer.concat(err), events });
      });
    });
  });
}

const closing = { claude: "result", codex: "turn.completed" } as const;

describe.each(["claude", "codex"] as const)("the stand-in as %s", (name) => {
  test("says a version that the adapters know", async () => {
    const { out } = await act(name, "", { args: ["--version"] });
    expect(out.toString()).toMatch(name === "claude" ? /^2\.1\.332 / : /0\.171\.0/);
  });

  test.each(["ok", "ok so it is", "replacement", "ansi", "split", "noise"])(
    "%s ends with the closing event",
    async (mode) => {
      const { exit, events, out } = await act(name, mode);
      expect(exit).toBe(0);
      expect(events.at(-1)?.["type"]).toBe(closing[name]);
      if (mode === "ok so it is") expect(out.toString()).toContain("so it is");
      if (mode === "replacement") expect(out.toString().match(/\uFFFD/g)).toHaveLength(3);
    },
  );

  test("B-098 no closing event, exit 0", async () => {
    const { exit, out } = await act(name, "no-result");
    expect(exit).toBe(0);
    expect(out.toString()).not.toContain(`"${closing[name]}"`);
  });

  test("B-025 lines of exact lengths, the last without an end", async () => {
    const { out } = await act(name, "lines");
    const lines = out.toString().split("\n");
    expect(lines.map(({ length }) => length)).toEqual(expect.arrayContaining([65535, 65536, 65537, 131072]));
    expect(lines.at(-1)).toContain(closing[name]);
  });

  test("B-024 a line of 10 MiB, and then the closing event", async () => {
    const { out, events } = await act(name, `big-line ${10 * 1024 * 1024}`);
    expect(out.length).toBeGreaterThan(10 * 1024 * 1024);
    expect(events.at(-1)?.["type"]).toBe(closing[name]);
  });

  test("B-022 floods of both outputs", async () => {
    expect((await act(name, "flood-stderr 5")).err.length).toBeGreaterThanOrEqual(5 * 1024 * 1024);
    expect((await act(name, "flood-stdout 5")).out.length).toBeGreaterThanOrEqual(5 * 1024 * 1024);
  });

  test("B-101 a result, and 143 when it is told to end", async () => {
    const { exit, events } = await act(name, "result-stays", { signal: "SIGTERM" });
    expect(exit).toBe(143);
    expect(events.at(-1)?.["type"]).toBe(closing[name]);
  });

  test("does not end for TERM where it is to ignore it", async () => {
    const { signal, out } = await act(name, "ignore-term", { signal: "SIGTERM", kill: "not yet" });
    expect(signal).toBe("SIGKILL");
    expect(out.toString()).toContain("not yet");
  });

  test("B-006 kills its own group, B-028 leaves its prompt unread", async () => {
    expect((await act(name, "group")).signal).toBe("SIGKILL");
    expect((await act(name, "", { env: { STAND_IN_MODE: "unread" } })).exit).toBe(1);
  });

  test("B-122 prints its environment, and a token in two writes", async () => {
    const { out } = await act(name, "env", { env: { FAKE_TOKEN: "sk-test-123" } });
    expect(out.toString()).toContain("FAKE_TOKEN=sk-test-123");
    expect(out.toString()).toContain("sk-test-123\n");
  });

  test.each(["429", "401", "529", "context", `usage-limit ${Math.floor(Date.now() / 1000) + 3600}`])(
    "%s is a failure",
    async (mode) => {
      const { exit, events } = await act(name, mode);
      expect(exit).toBe(1);
      expect(events.at(-1)).toMatchObject(
        name === "claude" ? { type: "result", is_error: true } : { type: "turn.failed" },
      );
    },
  );
});

const cmdline = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1");
  } catch {
    return ""; // it has ended meanwhile
  }
};

test("B-096 Claude's success with an error inside, and B-100 with a refused tool", async () => {
  const error = (await act("claude", "success-error")).events.at(-1);
  expect(error).toMatchObject({ subtype: "success", is_error: true, api_error_status: 429 });
  const denied = (await act("claude", "denied")).events.at(-1);
  expect(denied).toMatchObject({ subtype: "success", is_error: false, permission_denials: [{ tool_name: "Write" }] });
});

test("B-116 a session that is used already can be resumed, and one that is gone cannot", async () => {
  const used = await act("claude", "session-used", { args: ["--session-id", "s1"] });
  expect([used.exit, used.err.toString()]).toEqual([1, "Error: Session ID s1 is already in use.\n"]);
  const resumed = await act("claude", "session-used", { args: ["--resume", "s1"] });
  expect(resumed.events.at(-1)).toMatchObject({ type: "result", session_id: "s1" });
  const copy = await act("claude", "ok", { args: ["--resume", "s1", "--fork-session"] });
  expect(copy.events.at(-1)?.["session_id"]).not.toBe("s1");
  const gone = await act("codex", "session-gone", { args: ["exec", "resume", "s2", "-"] });
  expect([gone.exit, gone.out.length]).toEqual([1, 0]);
});

test("leaves a process in a session of its own", async () => {
  expect((await act("other", "children")).exit).toBe(0);
  const left = await until(() => processesOf(folder).find((pid) => cmdline(pid).includes("sleep")) ?? 0, "it is left");
  process.kill(left, "SIGKILL");
});

test("as an agent without a dialect it prints text", async () => {
  expect((await act("other", "ok hello")).out.toString()).toBe("hello\n");
});
