/** An attempt's folder as its command may leave it: it runs as the same user, and can put anything where our files were. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AppError } from "../../src/core/errors.ts";
import { defaultLimits } from "../../src/core/limits.ts";
import { agentTarget } from "../../src/core/target.ts";
import { openAgents } from "../../src/execution/agents/open-agents.ts";
import { followTranscript } from "../../src/execution/agents/transcript.ts";
import { FILES } from "../../src/execution/attempt-folder.ts";
import { judgeFolder } from "../../src/execution/evidence.ts";
import { openFiles } from "../../src/execution/files.ts";
import { followLog, readLog } from "../../src/execution/logs.ts";
import { openProcessTable } from "../../src/execution/processes.ts";
import { fingerprint } from "../../src/execution/scrub.ts";
import { openSpawner } from "../../src/execution/spawner.ts";
import { systemClock } from "../../src/execution/clock.ts";
import { commandOf } from "../drafts.ts";
import { type Chance, chanceOf } from "../sim/chance.ts";
import { checkError } from "./arena.ts";
import { budget, testLimitMs } from "./budget.ts";
import { mutateText } from "./grammar.ts";
import { openWatchdog, type Watchdog } from "./watchdog.ts";

const SECRET = "canary-0123456789";
/** Pages of one output that are read before it is taken for one without an end. */
const PAGES = 200;

let dog: Watchdog;
let runs: string;
beforeAll(() => {
  dog = openWatchdog();
  runs = mkdtempSync(join(tmpdir(), "drover-folders-"));
  mkdirSync(join(runs, "ended"));
});
afterAll(async () => {
  rmSync(runs, { recursive: true });
  await dog.close();
});

/** What stands in each file where nothing is wrong. */
const WHOLE: { readonly [file: string]: string } = {
  [FILES.stdout]: `line\n${'{"type":"result","subtype":"success","result":"done","session_id":"s"}'}\n${"x".repeat(9_000)}\n`,
  [FILES.stderr]: "said\n",
  [FILES.output]: '{"a": 1}',
  [FILES.holes]: JSON.stringify({ stdout: { from: 4_096, to: 8_192 } }),
  [FILES.prepared]: JSON.stringify({ cwd: "/", variables: { A: "1" }, repository: null }),
  [FILES.scrub]: JSON.stringify(fingerprint([SECRET])),
  [FILES.transcript]: `${JSON.stringify({ kind: "note", at: 1, text: "x" })}\n`,
  [FILES.id]: "999999 (sh) S 1 999999 999999 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 123 0 0\n",
  [FILES.run]: "go\ncmd 999998 (true) S 999999 999998 999999 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 124 0 0\nexit 0 12.5\n",
};

let made = 0;
/** A folder in which some of the files are damaged, and some are no files. */
function folderFor(chance: Chance): string {
  const name = `att_${String(++made)}.1`;
  const path = join(runs, name);
  mkdirSync(path);
  for (const [file, text] of Object.entries(WHOLE)) {
    const place = join(path, file);
    if (chance.hit(0.55)) writeFileSync(place, text);
    else if (chance.hit(0.6))
      writeFileSync(place, chance.hit(0.2) ? chance.bytes(chance.int(0, 200)) : mutateText(text, chance));
    else
      chance.pick([
        () => undefined,
        () => mkdirSync(place),
        () => execFileSync("mkfifo", [place]),
        () => symlinkSync("/dev/zero", place),
        () => symlinkSync(file, place),
        () => symlinkSync("/no/such/file", place),
        () =>
          writeFileSync(place, JSON.stringify({ stdout: { from: chance.int(0, 20_000), to: chance.int(0, 20_000) } })),
        () => writeFileSync(place, "[".repeat(100_000)),
      ])();
  }
  return name;
}

const target = commandOf(["true"], { expect: ["output", "file:x", "changes"] });
const agents = ["claude", "codex", "custom"].map((provider) =>
  agentTarget.parse({
    kind: "agent",
    provider,
    ...(provider === "custom" ? { command: ["/bin/cat"] } : {}),
    prompt: { digest: "5".repeat(64), bytes: 1, head: "x" },
    cwd: "/",
    worktree: "off",
  }),
);

test(
  "a damaged folder is read to its end or refused with a code, and nobody waits for what is no file",
  async () => {
    const spawner = openSpawner({ runsFolder: runs, cgroups: false, log: () => undefined });
    try {
      const files = openFiles({ runsFolder: runs, environment: {} });
      const clock = systemClock();
      await fc.assert(
        fc.asyncProperty(fc.noShrink(fc.nat()), async (seed) => {
          const chance = chanceOf(String(seed));
          const folder = folderFor(chance);
          const path = join(runs, folder);
          const tries = async (what: string, act: () => unknown): Promise<unknown> => {
            dog.trying(`${what} in ${path}`);
            try {
              return await act();
            } catch (error) {
              if (error instanceof AppError && error.code === "output_invalid") return null; // told with the attempt
              checkError(error, what, null);
              return null;
            } finally {
              dog.resting();
            }
          };
          for (const stream of ["stdout", "stderr"] as const) {
            for (const raw of [true, false])
              await tries(`read ${stream}`, async () => {
                let page = await readLog(path, stream, {
                  raw,
                  maxBytes: chance.pick([1, 100, 5_000]),
                  ...(chance.hit(0.3) ? { tailLines: chance.int(0, 5) } : {}),
                });
                for (let pages = 0; !page.atEnd && pages < PAGES; pages++) {
                  const { next } = await readLog(path, stream, { raw, from: page.next, maxBytes: 5_000 });
                  expect(next, `${stream} of ${path} goes on`).toBeGreaterThan(page.next);
                  page = await readLog(path, stream, { raw, from: page.next, maxBytes: 5_000 });
                }
              });
            await tries(`follow ${stream}`, async () => {
              for await (const piece of followLog(path, stream, { raw: false, ended: AbortSignal.abort() }))
                expect(piece.next).toBeGreaterThanOrEqual(0);
            });
            await tries(`tail ${stream}`, () => files.tail(folder, stream, 4_096));
          }
          await tries("transcript", async () => {
            for await (const _ of followTranscript(path, { ended: AbortSignal.abort() }));
          });
          await tries("output", () => files.output(folder));
          await tries("unmet", () => files.unmet(folder, target, null));
          for (const agent of agents)
            await tries(`events of ${agent.provider}`, async () => {
              const open = openAgents({ runsFolder: runs, limits: defaultLimits, clock, log: () => undefined });
              await open.read(folder, agent);
              await open.conclude(folder, agent, 0, clock.now());
            });
          await tries("judge", () => judgeFolder(path, chance.hit(0.5), chance.hit(0.5), openProcessTable()));
          await tries("trim", () => spawner.trim(folder, true));
          await tries("measure", () => spawner.measure(folder));
          await tries("remove", () => files.remove(folder));
        }),
        budget(60),
      );
    } finally {
      await spawner.close();
    }
  },
  testLimitMs,
);

test("a socket where a file was is refused as any other", async () => {
  const path = join(runs, "att_socket.1");
  mkdirSync(path);
  const server = createServer().listen(join(path, FILES.stdout));
  try {
    await new Promise((done) => server.once("listening", done));
    await expect(readLog(path, "stdout", { raw: true })).rejects.toMatchObject({ code: "attempt_damaged" });
  } finally {
    server.close();
  }
});
