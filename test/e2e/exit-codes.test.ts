/** A run, or a command, for each exit status of the contract. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

let home: Home;
beforeAll(async () => {
  home = openHome();
  mkdirSync(join(home.folder, "home"), { recursive: true });
  writeFileSync(join(home.folder, "home/config.yaml"), "caps:\n  commands: 1\n");
  await home.json(["up"]);
});
afterAll(() => home.close());

interface Run {
  readonly id: string;
  readonly status: string;
}

test("0: it was done", async () => {
  const { status, out, err } = await home.run(["run", "--", "sh", "-c", "echo out; echo err >&2"]);
  expect({ status, out, err }).toEqual({ status: 0, out: "out\n", err: "err\n" });
});

test("1: the work failed", async () => {
  const { status, err } = await home.run(["run", "--", "sh", "-c", "exit 7"]);
  expect(status).toBe(1);
  expect(err).toMatch(
    /^(run_\w+) failed after .*: exited with status 7\nmend: it printed nothing; `drover retry \1` runs it again\n$/,
  );
});

test("2: invalid use", async () => {
  const { status, out, err } = await home.run(["run", "--attempts", "many", "--", "true"]);
  expect({ status, out }).toEqual({ status: 2, out: "" });
  expect(err).toMatch(/^drover: .*\n$/);
});

test("3: not found", async () => {
  expect((await home.refused(3, ["show", "zzzzzz"])).code).toBe("run_not_found");
});

test("4: a conflict", async () => {
  await home.json(["loop", "add", "twice", "--every", "1h", "--", "true"]);
  expect((await home.refused(4, ["loop", "add", "twice", "--every", "1h", "--", "true"])).code).toBe("name_taken");
});

test("5: the store is unusable", async () => {
  const error = await home.refused(5, ["runs"], { env: { DROVER_STORE: "postgres://nobody@127.0.0.1:1/none" } });
  expect(error.code).toBe("store_unreachable");
});

test("6: not authorised", async () => {
  const error = await home.refused(6, ["run", "--", "true"], {
    env: { DROVER_RUN_ID: "run_00000000000000000000000000" },
  });
  expect(error.code).toBe("run_token_missing");
});

test("while it waits for another try, why is said on standard error", async () => {
  const { status, err } = await home.run(["run", "--attempts", "2", "--backoff", "1s", "--", "false"]);
  expect(status).toBe(1);
  expect(err).toMatch(/run_\w+ waits: it tries again in \S+ \(last end: exited with status 1\)\n/);
});

test("8: it waits for a limit, and goes on in the daemon", async () => {
  const first = await home.json<Run>(["run", "--detach", "--", "sleep", "600"]);
  await until(async () => (await home.json<Run>(["show", first.id])).status === "running", "the first one runs");
  const { status, out, err } = await home.run(["run", "--json", "--", "true"]);
  expect(status).toBe(8);
  const waiting = JSON.parse(out) as Run;
  expect(waiting.status).toBe("queued");
  expect(err).toContain("cap 1/1");
  const why = await home.json<{ sentence: string; facts: { refusal: unknown } }>(["why", waiting.id]);
  expect(why.sentence).toContain("cap 1/1");
  expect(why.facts.refusal).toMatchObject({ code: "cap", used: 1, limit: 1 });
  // Within a limit it is waited out.
  const patient = home.start(["run", "--wait-limit", "1m", "--", "true"]);
  await home.json(["cancel", first.id]);
  expect((await patient.ended).status).toBe(0);
  await until(async () => (await home.json<Run>(["show", waiting.id])).status === "succeeded", "the waiting one ran");
});

test("70: a fault of our own, told by an id and never by a stack trace", async () => {
  for (const [args, place] of [
    [["runs"], "read"],
    [["loop", "pause", "twice"], "call"],
  ] as const) {
    const { status, out, err } = await home.run(args, { env: { DROVER_TEST_FAULT: place } });
    expect({ status, out }).toEqual({ status: 70, out: "" });
    expect(err).toMatch(
      /^drover: a fault of drover's own \([\w-]+\)\. It is kept in \/.*faults\.log; please report it\.\n$/,
    );
  }
  const error = await home.refused(70, ["runs"], { env: { DROVER_TEST_FAULT: "read" } });
  expect(error.code).toBe("internal");
});

test("124: it timed out", async () => {
  const { status, out } = await home.run([
    "run",
    "--json",
    "--timeout",
    "300ms",
    "--grace",
    "0s",
    "--",
    "sleep",
    "600",
  ]);
  expect(status).toBe(124);
  expect(JSON.parse(out)).toMatchObject({ status: "timed_out", error: { class: "timeout" } });
});

test("130: Ctrl-C cancels the run, and returns when nothing of it is left", async () => {
  const started = home.start(["run", "--json", "--", "sh", "-c", "echo up; sleep 600"]);
  await until(
    async () => (await home.json<{ items: Run[] }>(["runs", "--status", "running"])).items.length === 1,
    "it runs",
  );
  started.signal("SIGINT");
  const { status, out } = await started.ended;
  expect(status).toBe(130);
  expect(JSON.parse(out)).toMatchObject({ status: "cancelled", cancel: { reason: "interrupted (Ctrl-C)" } });
});

test("130: a second Ctrl-C leaves at once", async () => {
  const started = home.start([
    "run",
    "--grace",
    "20s",
    "--",
    "sh",
    "-c",
    "trap '' TERM INT; echo deaf; while :; do sleep 1; done",
  ]);
  // Printed as it comes: what ends with a line is not held back until the run's end.
  await until(() => started.out().includes("deaf"), "it runs");
  started.signal("SIGINT");
  await until(async () => {
    const { items } = await home.json<{ items: { cancel: unknown }[] }>(["runs", "--status", "running"]);
    return items.some((run) => run.cancel !== null);
  }, "the cancel is recorded");
  started.signal("SIGINT");
  const { status } = await started.ended;
  expect(status).toBe(130);
});
