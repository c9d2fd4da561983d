import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { defaultLimits } from "../../core/limits.ts";
import type { AttemptDocument, RunTreeDocument, StepDocument } from "../documents.ts";
import { differenceFrom } from "../shape.ts";
import { manifestOf, manifestShape } from "./manifest.ts";

const attempt = {
  number: 1,
  hostId: "host_1",
  account: null,
  sessionId: null,
  class: null,
  exitCode: 0,
  tail: "the end\n",
};
const step = (key: string, more: Partial<AttemptDocument> = {}): StepDocument =>
  ({
    key,
    type: "command",
    status: "succeeded",
    reason: null,
    needs: [],
    output: null,
    attempts: [{ ...attempt, logs: { stdout: `/runs/${key}/out`, stderr: `/runs/${key}/err` }, ...more }],
  }) as unknown as StepDocument;
const run = (more: Partial<RunTreeDocument> = {}): RunTreeDocument =>
  ({
    id: "run_1",
    kind: "command",
    status: "succeeded",
    reason: null,
    target: { kind: "command", argv: ["make"], expect: ["commit", "file:report.md"] },
    loop: "nightly",
    loopId: "loop_1",
    slotAt: "2026-05-01T00:00:00.000Z",
    origin: "slot",
    workItemId: null,
    parentRunId: null,
    rootRunId: "run_1",
    labels: [],
    createdAt: "2026-05-01T00:00:00.000Z",
    startedAt: "2026-05-01T00:00:01.000Z",
    finishedAt: "2026-05-01T00:00:02.000Z",
    exitCode: 0,
    error: null,
    output: null,
    usage: null,
    retryOf: null,
    worktree: null,
    steps: [step("main")],
    ...more,
  }) as unknown as RunTreeDocument;

type Made = {
  readonly definition: { readonly name: string | null; readonly sha256: string };
  readonly asked: { readonly target: unknown };
  readonly source: unknown;
  readonly result: { readonly output: { readonly sha256: string } | null };
  readonly steps: readonly { readonly key: string }[];
  readonly stepsLeftOut: number;
  readonly sha256: string;
  readonly receipt: {
    readonly summary: string;
    readonly cut: number;
    readonly evidence: readonly { readonly kind: string; readonly text: string }[];
    readonly evidenceLeftOut: number;
  };
};
const made = (more: Partial<RunTreeDocument> = {}, limits = defaultLimits): Made => {
  const manifest = manifestOf(run(more), limits);
  expect(differenceFrom(manifestShape, manifest)).toBeNull();
  return manifest as unknown as Made;
};

const worktree = {
  repository: "/shop",
  branch: "drover/nightly/a",
  base: "c0ffee",
  baseNote: "origin/main, fetched",
  commits: 1,
  diffStat: "1 file changed",
} as unknown as RunTreeDocument["worktree"];

test("says what was asked, on which commit, with which result, and what proves it", () => {
  const { source, receipt, steps } = made({ worktree });
  expect(source).toEqual({
    repository: "/shop",
    commit: "c0ffee",
    note: "origin/main, fetched",
    branch: "drover/nightly/a",
  });
  expect(steps.map(({ key }) => key)).toEqual(["main"]);
  expect(receipt).toEqual({
    summary: "the end\n",
    cut: 0,
    evidence: [
      { kind: "branch", text: "drover/nightly/a" },
      { kind: "diff", text: "1 file changed" },
      { kind: "expectation", text: "commit" },
      { kind: "expectation", text: "file:report.md" },
      { kind: "log", text: "/runs/main/out" },
      { kind: "log", text: "/runs/main/err" },
    ],
    evidenceLeftOut: 0,
  });
});

describe("the digest", () => {
  test("is that of the text with its keys in order, whoever made it", () => {
    const { sha256, receipt: _, ...facts } = made() as unknown as { sha256: string; receipt: unknown };
    const ordered = (value: unknown): unknown =>
      Array.isArray(value)
        ? value.map(ordered)
        : typeof value === "object" && value !== null
          ? Object.fromEntries(
              Object.entries(value)
                .sort(([a], [b]) => (a < b ? -1 : 1))
                .map(([key, one]) => [key, ordered(one)]),
            )
          : value;
    expect(sha256).toBe(
      createHash("sha256")
        .update(JSON.stringify(ordered(facts)))
        .digest("hex"),
    );
  });

  test("stays when the tree goes, and differs with another result", () => {
    const { sha256 } = made({ worktree });
    const gone = { ...worktree, commits: 2, diffStat: null, state: "removed" } as RunTreeDocument["worktree"];
    expect(made({ worktree: gone }).sha256).toBe(sha256);
    expect(made({ worktree, exitCode: 1 }).sha256).not.toBe(sha256);
  });
});

test("a definition is known by its text: of a workflow, of a prompt, of a command all that is shown", () => {
  const workflow = { kind: "workflow", name: "release", definition: { digest: "d1" }, inputs: {} };
  expect(made({ kind: "workflow", target: workflow }).definition).toMatchObject({ name: "release", sha256: "d1" });
  expect(made({ kind: "agent", target: { prompt: { digest: "p1" } } }).definition.sha256).toBe("p1");
  const { sha256 } = made().definition;
  expect(sha256).toMatch(/^[0-9a-f]{64}$/);
  expect(made({ target: { kind: "command", argv: ["make", "all"] } }).definition.sha256).not.toBe(sha256);
});

describe("what is long is bounded, and says by how much", () => {
  test("a summary is cut between characters", () => {
    const { receipt } = made({ output: "😀".repeat(5_000) });
    expect([receipt.summary, receipt.cut]).toEqual(["😀".repeat(4_096), 904]);
    expect(made({ output: { verdict: "accept" } }).receipt.summary).toBe('{"verdict":"accept"}');
  });

  test("steps and evidence", () => {
    const steps = Array.from({ length: 1_500 }, (_, i) => step(`each[${i}]`));
    const { steps: listed, stepsLeftOut, receipt } = made({ steps });
    expect([listed.length, stepsLeftOut]).toEqual([1_000, 500]);
    expect([receipt.evidence.length, receipt.evidenceLeftOut]).toEqual([100, 2 + 3_000 - 100]);
    const long = made({ steps: [step("main", { logs: { stdout: "x".repeat(5_000), stderr: "y" } as never })] });
    expect(long.receipt.evidence.find(({ kind }) => kind === "log")?.text).toHaveLength(1_024);
  });
});
