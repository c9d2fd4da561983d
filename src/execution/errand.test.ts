import { expect, test } from "vitest";
import { giveUpErrands, runErrand } from "./errand.ts";
import { openProcessTable } from "./processes.ts";

const table = openProcessTable();
const errand = (script: string, sweep = false) =>
  runErrand(
    {
      argv: ["/bin/sh", "-c", script],
      cwd: "/",
      environment: { PATH: process.env["PATH"] ?? "" },
      timeoutMs: 30_000,
      keepBytes: 1024 * 1024,
      keep: "head",
    },
    table,
    sweep,
  );
/** Keeps this thread from everything else, as a busy machine does. */
const block = (ms: number): void => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test("what was printed before the end is read, however busy we are", async () => {
  // Work between two looks at the pipes, in which other children end: their ends are seen before what they printed.
  const ends = await Promise.all(
    Array.from({ length: 40 }, async (_, i) => {
      const end = await errand(`sleep 0.${String(i * 2).padStart(2, "0")}; echo said`);
      block(230);
      return end;
    }),
  );
  expect(ends.map((end) => [end.exit, end.whole, end.stdout.toString()])).toEqual(ends.map(() => [0, true, "said\n"]));
});

test("what a helper that holds the output may still print is not waited for, and said to be missing", async () => {
  const end = await errand("echo said; sleep 5 &");
  expect(end).toMatchObject({ exit: 0, whole: false });
  expect(end.stdout.toString()).toBe("said\n");
});

test("that what holds the output is ended makes it no whole", async () => {
  const end = await errand("echo said; sleep 300 &", true);
  expect(end).toMatchObject({ exit: 0, whole: false, report: { killed: 1, left: 0 } });
  expect(await errand("echo said; sleep 300 >/dev/null 2>&1 &", true)).toMatchObject({
    whole: true,
    report: { killed: 1 },
  });
});

test("errands that are given up end with all that they started", async () => {
  const begun = performance.now();
  const ended = Promise.all([errand("sleep 300 & echo $!; wait"), errand("exec sleep 300")]);
  await giveUpErrands();
  expect(await ended).toMatchObject([
    { exit: null, timedOut: false, report: { left: 0 } },
    { exit: null, timedOut: false, report: { left: 0 } },
  ]);
  expect(performance.now() - begun).toBeLessThan(20_000);
  await giveUpErrands();
});
