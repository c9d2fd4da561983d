/** What is found when an attempt is over: leftovers, outputs, expectations, the words of an agent. They make its outcome. */
import type { AgentOutcome, AgentVerdict } from "../core/agent.ts";
import { AppError } from "../core/errors.ts";
import type { Escape } from "../core/escape.ts";
import type { Limits } from "../core/limits.ts";
import { type JsonSchema, misfits } from "../core/json-schema.ts";
import type { EndReport, Measure } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import { classify, classifyAgent, type Ending, type Evidence, isOurs, nothing } from "./classify.ts";
import type { AgentLife, Life } from "./life.ts";
import type { EnginePorts } from "./ports.ts";
import { refusalOf, wayOf } from "./resumption.ts";
import { Halted, type Weather } from "./weather.ts";

type Ended = Evidence["judgement"];

/** What an agent's events add up to, and whether its closing event came before we began to end it. */
export type Said = AgentVerdict & { readonly closed: boolean };

/** What a process handed over: JSON text, or why it is none; both null when there is nothing. */
export interface Output {
  readonly json: string | null;
  readonly fault: string | null;
}

/** The ends of both outputs, scrubbed; null where they could not be read, or nothing has begun. */
export type Tails = { readonly stdout: string; readonly stderr: string } | null;

/** All that is known of an attempt that is over. What belongs to a process is null when there was none. */
export interface Found {
  readonly judgement: Ended;
  /** null when nobody but itself ended it. */
  readonly ending: Ending | null;
  /** What ending its tree, or the sweep of its leftovers, came to. */
  readonly report: EndReport | null;
  readonly written: Pick<Measure, "stdoutBytes" | "stderrBytes"> | null;
  /** null for a command. */
  readonly said: Said | null;
  readonly output: Output;
  readonly tails: Tails;
  /** The first expectation that does not hold; null also when none had to. */
  readonly unmet: string | null;
  readonly escaped: Escape | null;
}

/** Reads what an attempt left. What cannot be read is told, and missing from its outcome: its end is certain all the same. */
export interface Aftermath {
  /** Ends what it left behind. */
  sweep(life: Life): Promise<EndReport>;
  /** What an agent's events and status add up to. */
  verdictOf(life: Life, agent: AgentLife, judgement: Ended, ending: Ending | null): Promise<Said>;
  /** Its output, the end of what it printed, and, when it ended well by itself, the first expectation that does not hold. */
  handedOver(life: Life, judgement: Ended, said: Said | null): Promise<[Output, Tails, string | null]>;
  /** What changed in the checkout that its worktree was made from; null: nothing, or nobody looked. */
  escapedOf(life: Life): Promise<Escape | null>;
  /** The outcome that all of it makes. Pure. */
  outcomeOf(life: Life, found: Found): Outcome;
}

/** What it reads with. */
export interface AftermathOptions {
  readonly ports: Pick<EnginePorts, "clock" | "spawner" | "files" | "agents" | "worktrees" | "log">;
  readonly limits: Pick<Limits, "outputBytes" | "tailBytes">;
  readonly weather: Weather;
}

/** The one that reads what the attempts of this host left. */
export function createAftermath({ ports, limits, weather }: AftermathOptions): Aftermath {
  const { clock, spawner, files, agents, worktrees, log } = ports;

  function outcomeOf(life: Life, found: Found): Outcome {
    const { judgement, ending, report, written, said, output, unmet } = found;
    const { run, spec } = life.assignment;
    const { target } = run;
    const isOwnProgram = target.kind === "agent" && target.command !== null;
    const evidence = {
      judgement,
      ending,
      left: report?.left ?? 0,
      outputFault: output.fault,
      unmet,
      isOwnProgram,
      program: target.kind === "agent" ? (target.command?.[0] ?? target.provider) : target.argv[0],
      cwd: life.tree?.path ?? target.cwd,
    };
    const verdict = blocked(spec, said === null ? classify(evidence) : classifyAgent(evidence, said, said.closed));
    const times = judgement.kind === "ended" ? judgement : null;
    const began = judgement.kind !== "never_started";
    return {
      ...nothing,
      ...verdict,
      output: verdict.kind === "succeeded" ? output.json : null,
      tail: joined(found.tails),
      ...(spec == null || found.tails === null ? {} : { tails: found.tails }),
      stdoutBytes: written?.stdoutBytes ?? 0,
      stderrBytes: written?.stderrBytes ?? 0,
      // Those that we had to end along with the command itself are no leftovers.
      reaped: report === null ? 0 : ending === null ? report.killed : 0,
      proof: report?.proof ?? null,
      startedAt: times?.startedAt ?? (began && life.seen ? life.askedAt : null),
      endedAt: times?.endedAt ?? null,
      ...(said === null ? {} : { agent: agentOutcome(life, said) }),
      ...(found.escaped === null ? {} : { escaped: found.escaped }),
    };
  }

  async function verdictOf(life: Life, agent: AgentLife, judgement: Ended, ending: Ending | null): Promise<Said> {
    // A signal of ours says nothing about the agent.
    const exit = judgement.kind === "ended" && !isOurs({ judgement, ending }) ? judgement.exit : null;
    try {
      // One that an earlier daemon began to end is taken at its word: nobody knows what came first.
      const { closed } = await agents.read(life.folder, agent.target);
      const verdict = await agents.conclude(life.folder, agent.target, exit, clock.now());
      return { ...verdict, closed: agent.closedFirst ?? closed };
    } catch (error) {
      weather.mishap(`events of ${life.id}`, error, 1);
      return { ...unread, sessionId: agent.sessionId, closed: false };
    }
  }

  function agentOutcome(life: Life, said: AgentVerdict): AgentOutcome {
    const { how, copyOf } = wayOf(life.assignment, agents);
    return {
      sessionId: said.sessionId ?? life.agent?.sessionId ?? null,
      usage: said.usage,
      resetAt: said.resetAt,
      resetSource: said.resetSource,
      httpStatus: said.httpStatus,
      refusedTools: said.refusedTools,
      ...refusalOf(how, said),
      ...(copyOf === undefined ? {} : { copyOf }),
    };
  }

  async function sweep(life: Life): Promise<EndReport> {
    try {
      return await spawner.sweep({
        folder: life.folder,
        mark: life.id,
        graceMs: life.assignment.run.policy.graceMs,
      });
    } catch (error) {
      weather.mishap(`sweep ${life.id}`, error, 1);
      return { killed: 0, left: 0, proof: "not_proved" };
    }
  }

  function handedOver(life: Life, judgement: Ended, said: Said | null) {
    const began = judgement.kind !== "never_started";
    const byItself =
      said === null ? judgement.kind === "ended" && judgement.exit === 0 && judgement.fault === undefined : said.ok;
    return Promise.all([
      began ? outputOf(life, said) : { json: null, fault: null },
      began ? tailsOf(life) : null,
      byItself ? unmetOf(life, said) : null,
    ]);
  }

  async function outputOf(life: Life, said: AgentVerdict | null): Promise<Output> {
    try {
      const json = await files.output(life.folder);
      const schema = life.assignment.spec?.output;
      return schema === undefined
        ? { json: json ?? resultOf(said), fault: null }
        : fitted(schema, json ?? structuredOf(said?.text ?? null));
    } catch (error) {
      // Also where it damaged what its output is read with.
      if (error instanceof AppError && error.kind === "invalid") return { json: null, fault: error.message };
      weather.mishap(`output ${life.id}`, error, 1);
      return { json: null, fault: null };
    }
  }

  /** What an agent said at last, where it handed over nothing else; null when it is too long for that. */
  function resultOf(said: AgentVerdict | null): string | null {
    if (said === null || said.text === null) return null;
    const json = JSON.stringify({ result: said.text });
    return json.length <= limits.outputBytes ? json : null;
  }

  async function unmetOf(life: Life, said: AgentVerdict | null): Promise<string | null> {
    const { target } = life.assignment.run;
    if (target.expect.length === 0) return null;
    try {
      return await files.unmet(life.folder, target, said?.text ?? null);
    } catch (error) {
      // Success needs evidence: what cannot be checked does not hold.
      return `the expectations could not be checked: ${error instanceof Error ? error.message : String(error)}`;
    }
  }

  async function tailsOf(life: Life): Promise<Tails> {
    try {
      const [out, err] = await Promise.all([
        files.tail(life.folder, "stdout", limits.tailBytes),
        files.tail(life.folder, "stderr", limits.tailBytes),
      ]);
      return { stdout: out.text, stderr: err.text };
    } catch (error) {
      weather.mishap(`tail ${life.id}`, error, 1);
      return null;
    }
  }

  async function escapedOf({ tree }: Life): Promise<Escape | null> {
    if (tree === null || tree.state === "making") return null;
    try {
      return await worktrees.escaped(tree);
    } catch (error) {
      if (error instanceof Halted) throw error;
      log("warn", "main_unwatched", { run: tree.runId, message: String(error) });
      return null;
    }
  }

  return { sweep, verdictOf, handedOver, escapedOf, outcomeOf };
}

/** Both outputs as one text, errors last. */
function joined(tails: Tails): string | null {
  if (tails === null) return null;
  const { stdout, stderr } = tails;
  const text = [stdout, stderr].filter((part) => part !== "").join(stdout.endsWith("\n") ? "" : "\n");
  return text === "" ? null : text;
}

/** A gate that ended with one of its statuses says that nothing behind it is to be done. */
function blocked(spec: Assignment["spec"], verdict: ReturnType<typeof classify>): ReturnType<typeof classify> {
  const { kind, class: failure, endedBy, exitStatus } = verdict;
  const blocks = kind === "failed" && failure === "exit" && endedBy === "self" && exitStatus !== null;
  if (!blocks || spec?.blockedExitCodes?.includes(exitStatus) !== true) return verdict;
  return { ...verdict, kind: "blocked", class: null, message: `exited with status ${exitStatus}, which blocks` };
}

/** What an agent said at last, where that is JSON: by itself, or as the last block of code in its text. */
function structuredOf(text: string | null): string | null {
  if (text === null) return null;
  const blocks = [...text.matchAll(/```(?:json)?\s*\n([\s\S]*?)```/g)].map(([, inside]) => inside ?? "");
  for (const one of [text, ...blocks.toReversed()])
    try {
      return JSON.stringify(JSON.parse(one));
    } catch {
      // the next one may be
    }
  return null;
}

/** An output that its step's schema takes, or why it does not. */
function fitted(schema: JsonSchema, json: string | null): Output {
  const [misfit] = misfits(schema, json === null ? null : (JSON.parse(json) as unknown));
  if (misfit === undefined) return { json, fault: null };
  const what = json === null ? "nothing was written to DROVER_OUTPUT" : misfit.message;
  return {
    json: null,
    fault: `the output does not fit the step's schema: ${misfit.at === "" ? "" : `${misfit.at}: `}${what}`,
  };
}

/** What is known of an agent whose events could not be read. */
const unread: AgentVerdict = {
  ok: false,
  class: "unknown",
  message: "its events could not be read",
  text: null,
  sessionId: null,
  usage: null,
  resetAt: null,
  resetSource: null,
  httpStatus: null,
  refusedTools: [],
};
