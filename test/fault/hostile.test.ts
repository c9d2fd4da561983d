/** Commands that do not want to end, each under every reason to end them, through the real daemon. */
import { readFileSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { install, until, type Installation } from "./installation.ts";

/** What a command may take from its end to the proof that nothing of it is left, beside its limit and its grace. */
const SLACK_MS = 2_000;
/** How many want each processor, at least 1: on a busy machine the bound is as much longer as the queue for them. */
const crowding = () => Math.max(1, (loadavg()[0] ?? 1) / availableParallelism());
const GRACE_MS = 1_000;

interface Tree {
  readonly script: string;
  /** It writes all the time, so no idle limit ever passes. */
  readonly busy?: boolean;
  /** How it ends by itself before any limit. */
  readonly ownEnd?: { readonly status: string; readonly class: string };
}

const trees: Readonly<Record<string, Tree>> = {
  background: { script: "sleep 300 & sleep 300 & wait" },
  setsid: { script: "setsid sleep 300 & setsid nohup sleep 301 >/dev/null 2>&1 & sleep 300" },
  "double fork": { script: `sh -c '(sleep 300 &) ; (sh -c "sleep 301 &" &)'; sleep 300` },
  nohup: { script: "nohup sleep 300 >/dev/null 2>&1 & exec sleep 300" },
  "ignores TERM": { script: `trap "" TERM HUP INT; sleep 300 & while :; do sleep 1; done` },
  "forks while being killed": {
    script: `exec perl -e '$SIG{TERM} = sub { for (1..30) { if (!fork) { setpgrp(0,0); sleep 300 } } }; $SIG{CHLD} = "IGNORE"; while (1) { if (!fork) { select(undef,undef,undef,0.2); exit } select(undef,undef,undef,0.01) }'`,
  },
  "holds both outputs open": { script: "(trap '' TERM; sleep 300) & sleep 300" },
  "kills its own group": { script: "sleep 300 & sleep 0.5; kill -9 0", ownEnd: { status: "failed", class: "lost" } },
  "writes to /dev/stderr": {
    script: "while :; do echo line >/dev/stderr; echo more >>/dev/stderr; sleep 0.02; done",
    busy: true,
  },
  "no newline": { script: "head -c 100000000 /dev/zero | tr '\\0' x; exec sleep 300" },
  "closed outputs": { script: "exec >&- 2>&- <&-; sleep 300" },
};

interface RunAnswer {
  readonly id: string;
  readonly status: string;
  readonly reason: string | null;
  readonly error: { readonly class: string } | null;
  readonly steps: readonly {
    readonly status: string;
    readonly attempts: readonly {
      readonly id: string;
      readonly status: string;
      readonly class: string | null;
      readonly counted: boolean | null;
      readonly startedAt: string;
      readonly finishedAt: string;
    }[];
  }[];
}

let at: Installation;
beforeAll(async () => {
  at = install();
  const up = await at.run("up");
  expect(up.status, up.stderr).toBe(0);
});
afterAll(() => at.close());

const show = (id: string) => at.json<RunAnswer>("show", id);
const start = async (script: string, ...flags: string[]) =>
  (await at.json<{ id: string }>("run", "--detach", "--grace", `${GRACE_MS}ms`, ...flags, "--shell", script)).id;
const ended = (id: string, deadlineMs = 60_000) =>
  until(
    `${id} to end`,
    async () => {
      const run = await show(id);
      return ["queued", "running", "waiting"].includes(run.status) ? null : run;
    },
    deadlineMs,
  );
const running = (id: string) =>
  until(`${id} to run`, async () => {
    const run = await show(id);
    return run.steps[0]?.attempts.at(-1)?.startedAt ? run : null;
  });
const attemptOf = (run: RunAnswer) => {
  const attempt = run.steps[0]?.attempts.at(-1);
  if (attempt === undefined) throw new Error("the run has an attempt");
  return attempt;
};
const tookMs = (run: RunAnswer) => Date.parse(attemptOf(run).finishedAt) - Date.parse(attemptOf(run).startedAt);
const left = (run: RunAnswer) => at.marked().filter((one) => readMark(one.pid) === attemptOf(run).id);
const readMark = (pid: number) => {
  try {
    return /DROVER_ATTEMPT_ID=([^\0]*)/.exec(readFileSync(`/proc/${pid}/environ`, "utf8"))?.[1];
  } catch {
    return undefined;
  }
};
const residentKib = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${at.daemons()[0]}/status`, "utf8"))?.[1]);

describe.each(Object.entries(trees))("B-001 B-002 B-003 B-004 %s", (_, tree) => {
  test("under a timeout", async () => {
    const run = await ended(await start(tree.script, "--timeout", "1500ms"));
    const expected = tree.ownEnd ?? { status: "timed_out", class: "timeout" };
    expect({ status: run.status, class: run.error?.class }).toEqual(expected);
    expect(left(run)).toEqual([]);
    expect(tookMs(run)).toBeLessThanOrEqual(1_500 + GRACE_MS + SLACK_MS * crowding());
  });

  test("under an idle timeout", async () => {
    const run = await ended(await start(tree.script, "--idle-timeout", "1500ms", "--timeout", "4s"));
    const expected = tree.ownEnd ?? { status: "timed_out", class: tree.busy ? "timeout" : "idle_timeout" };
    expect({ status: run.status, class: run.error?.class }).toEqual(expected);
    expect(left(run)).toEqual([]);
    expect(tookMs(run)).toBeLessThanOrEqual(4_000 + GRACE_MS + SLACK_MS * crowding());
  });

  test("under cancel, which returns when nothing is left", async () => {
    const id = await start(tree.script);
    const before = await running(id);
    const answer = await at.run("cancel", id, "--json");
    const run = await show(id);
    if (tree.ownEnd === undefined) {
      expect(answer.status, answer.stderr).toBe(0);
      expect(run).toMatchObject({ status: "cancelled" });
    } else expect(["cancelled", "failed"]).toContain((await ended(id)).status);
    expect(left(before)).toEqual([]);
  });
});

test("B-015 stop with all of them at work: each goes back uncounted, nothing is left", async () => {
  const ids = await Promise.all(
    Object.values(trees)
      .filter((tree) => tree.ownEnd === undefined)
      .map((tree) => start(tree.script)),
  );
  const runs = await Promise.all(ids.map(running));
  const down = await at.run("down", "--stop-runs", "--drain", "0s");
  expect(down.status, down.stderr).toBe(0);
  for (const run of runs) expect(left(run)).toEqual([]);
  expect(at.marked()).toEqual([]);
  for (const id of ids) {
    const run = await show(id);
    expect(run.status).toBe("queued");
    expect(run.steps[0]?.attempts.at(-1)).toMatchObject({ counted: false });
  }
  expect((await at.run("up")).status).toBe(0);
  for (const id of ids) expect((await at.run("cancel", id)).status).toBe(0);
});

test("P7 one gigabyte: the run is not touched by its size, and the daemon's memory does not grow with it", {
  timeout: 180_000,
}, async () => {
  const before = residentKib();
  let peak = before;
  const id = await start("head -c 1000000000 /dev/zero | tr '\\0' y; exit 3");
  const run = await until(
    "the flood to end",
    async () => {
      peak = Math.max(peak, residentKib());
      const now = await show(id);
      return now.status === "failed" ? now : null;
    },
    150_000,
  );
  expect(run.error?.class).toBe("exit");
  expect(peak - before).toBeLessThan(16 * 1024);
});
