/**
 * A run's manifest: what was asked, by which definition, on which commit, with which result; and a receipt, which is bounded.
 * It is made of what the store keeps of the run, as that is shown: it cannot differ from it, and holds no more than it.
 */
import { createHash } from "node:crypto";
import { isObject } from "../../core/json-schema.ts";
import type { Limits } from "../../core/limits.ts";
import type { RunTreeDocument, StepDocument } from "../documents.ts";
import type { Json } from "../fields.ts";
import { anything, instant, integer, listOf, nullable, object, oneOf, type Shape, string } from "../shape.ts";

type Bounds = Pick<Limits, "manifestSteps" | "receiptCharacters" | "receiptEvidence">;
type Values = { readonly [key: string]: unknown };

const digestKeys: Shape = nullable(object({ bytes: integer, sha256: string }));

export const manifestShape: Shape = object({
  version: integer,
  runId: string,
  createdAt: instant,
  asked: object({
    origin: string,
    loop: nullable(string),
    loopId: nullable(string),
    slotAt: nullable(instant),
    workItemId: nullable(string),
    parentRunId: nullable(string),
    rootRunId: string,
    retryOf: nullable(string),
    labels: listOf(string),
    target: anything,
  }),
  /** `sha256`: of a workflow its text, of an agent its prompt, of a command all that is shown of it. */
  definition: object({ kind: oneOf(["command", "agent", "workflow"]), name: nullable(string), sha256: string }),
  /** The commit that it began at; null where it had no worktree. */
  source: nullable(
    object({
      repository: nullable(string),
      commit: nullable(string),
      note: nullable(string),
      branch: nullable(string),
    }),
  ),
  result: object({
    status: string,
    reason: nullable(string),
    exitCode: nullable(integer),
    error: nullable(object({ class: string, message: string })),
    startedAt: nullable(instant),
    finishedAt: nullable(instant),
    output: digestKeys,
    usage: anything,
  }),
  steps: listOf(
    object({
      key: string,
      type: string,
      status: string,
      reason: nullable(string),
      needs: listOf(string),
      output: digestKeys,
      attempts: integer,
      /** Of the last attempt. */
      host: nullable(string),
      account: nullable(string),
      session: nullable(string),
      class: nullable(string),
      exitCode: nullable(integer),
    }),
  ),
  /** Steps beyond those that are listed. */
  stepsLeftOut: integer,
  /** Of all above, as JSON with its keys in order and nothing between. */
  sha256: string,
  receipt: object({
    /** What it handed over, or the last that it printed. */
    summary: nullable(string),
    /** Characters of it that are left out. */
    cut: integer,
    evidence: listOf(object({ kind: oneOf(["branch", "diff", "expectation", "log"]), text: string })),
    evidenceLeftOut: integer,
  }),
});

/** Longest text of one piece of evidence, in characters. */
const EVIDENCE_CHARACTERS = 1_024;

/** @param run as it is shown, without secrets */
export function manifestOf(run: RunTreeDocument, bounds: Bounds): Values {
  const { target, worktree } = run;
  const facts = {
    version: 1,
    runId: run.id,
    createdAt: run.createdAt,
    asked: {
      origin: run.origin,
      loop: run.loop,
      loopId: run.loopId,
      slotAt: run.slotAt,
      workItemId: run.workItemId,
      parentRunId: run.parentRunId,
      rootRunId: run.rootRunId,
      retryOf: run.retryOf,
      labels: run.labels,
      target,
    },
    definition: definitionOf(run.kind, target),
    source:
      worktree === null
        ? null
        : {
            repository: worktree.repository,
            commit: worktree.base,
            note: worktree.baseNote,
            branch: worktree.branch,
          },
    result: {
      status: run.status,
      reason: run.reason,
      exitCode: run.exitCode,
      error: run.error,
      startedAt: run.startedAt,
      finishedAt: run.finishedAt,
      output: digestOf(run.output),
      usage: run.usage,
    },
    steps: run.steps.slice(0, bounds.manifestSteps).map(stepFacts),
    stepsLeftOut: Math.max(0, run.steps.length - bounds.manifestSteps),
  };
  return { ...facts, sha256: sha256(canonical(facts)), receipt: receiptOf(run, bounds) };
}

function stepFacts(step: StepDocument): Values {
  const last = step.attempts.at(-1);
  return {
    key: step.key,
    type: step.type,
    status: step.status,
    reason: step.reason,
    needs: step.needs,
    output: digestOf(step.output),
    attempts: step.attempts.length,
    host: last?.hostId ?? null,
    account: last?.account ?? null,
    session: last?.sessionId ?? null,
    class: last?.class ?? null,
    exitCode: last?.exitCode ?? null,
  };
}

function receiptOf(run: RunTreeDocument, bounds: Bounds): Values {
  const { output, worktree } = run;
  const tail = run.steps.flatMap(({ attempts }) => attempts).findLast((one) => one.tail !== null)?.tail ?? null;
  const expect = isObject(run.target) ? run.target["expect"] : null;
  const expected: readonly unknown[] = Array.isArray(expect) ? expect : [];
  const text = output === null ? tail : typeof output === "string" ? output : JSON.stringify(output);
  // Characters, so that none is cut in half.
  const letters = text === null ? [] : Array.from(text);
  const evidence = [
    ...(worktree?.branch == null ? [] : [{ kind: "branch", text: worktree.branch }]),
    ...(worktree?.diffStat == null ? [] : [{ kind: "diff", text: worktree.diffStat }]),
    ...expected.map((one) => ({ kind: "expectation", text: String(one) })),
    ...run.steps.flatMap((step) => {
      const logs = step.attempts.at(-1)?.logs;
      return logs == null ? [] : [logs.stdout, logs.stderr].map((path) => ({ kind: "log", text: path }));
    }),
  ];
  return {
    summary: text === null ? null : letters.slice(0, bounds.receiptCharacters).join(""),
    cut: Math.max(0, letters.length - bounds.receiptCharacters),
    evidence: evidence
      .slice(0, bounds.receiptEvidence)
      .map(({ kind, text: said }) => ({ kind, text: Array.from(said).slice(0, EVIDENCE_CHARACTERS).join("") })),
    evidenceLeftOut: Math.max(0, evidence.length - bounds.receiptEvidence),
  };
}

function definitionOf(kind: string, target: Json): Values {
  const said = isObject(target) ? target : {};
  const of = isObject(said["definition"]) ? said["definition"] : isObject(said["prompt"]) ? said["prompt"] : null;
  const digest = of === null ? undefined : of["digest"];
  return {
    kind,
    name: typeof said["name"] === "string" ? said["name"] : null,
    sha256: typeof digest === "string" ? digest : sha256(canonical(target)),
  };
}

function digestOf(output: Json): Values | null {
  if (output === null) return null;
  const text = canonical(output);
  return { bytes: Buffer.byteLength(text), sha256: sha256(text) };
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

/** A value as JSON with its keys in order, so that the same one has the same text. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, of: unknown) =>
    isObject(of) ? Object.fromEntries(Object.entries(of).toSorted(([a], [b]) => (a < b ? -1 : 1))) : of,
  );
}
