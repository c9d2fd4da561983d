/**
 * Any command line that reads a prompt on standard input and prints its result. What it prints is the result; when that
 * is one JSON object, its `result` is, with `session`, `usage` and `error` beside it.
 */
import type { AgentVerdict, Usage } from "../../core/agent.ts";
import { AppError } from "../../core/errors.ts";
import type { Adapter, Reader, Surroundings } from "./adapter.ts";
import { at, countAt, type Fields, fieldsOf, numberAt, shownValue, textAt } from "./event-fields.ts";
import { endedWithoutResult, failed, lastLine, succeeded } from "./verdict.ts";

export const custom: Adapter = {
  provider: "custom",
  program: null,
  keys: [],
  secretKeys: [],
  homeVariable: null,
  off: {},
  tested: null,
  versionArgs: [],
  loginArgs: null,
  probeLogin: null,
  capabilities: {
    // By the id that it names; it is told that id again.
    resume: true,
    fork: false,
    presetSession: false,
    // Nothing holds it to one.
    permissions: ["workspace-write", "full"],
    promptBy: "stdin",
    promptLimits: null,
    commitsInCheckout: true,
    usage: false,
    cost: false,
    jsonEvents: false,
    concurrentHomes: true,
  },
  serialStarts: false,
  noise: null,

  build({ target, session, isRoot }) {
    if (target.command === null)
      throw new AppError("invalid", "env_invalid", "a custom agent has no command", {
        hint: "Name it: --agent custom --agent-command FILE [ARGS...].",
        path: "command",
      });
    if (target.permission === "read-only")
      throw new AppError("invalid", "agent_refused", "nothing holds a custom agent to reading only", {
        hint: "Leave the permission out, and give it a worktree: --worktree required.",
        path: "permission",
      });
    if (target.permission === "full" && isRoot && !target.allowRoot)
      throw new AppError("invalid", "agent_refused", "full permission as root needs to be allowed in so many words", {
        hint: "Run the daemon as another user, or say --allow-root where that is meant.",
        path: "allowRoot",
      });
    return {
      argv: target.command,
      env: {
        DROVER_PERMISSION: target.permission,
        ...(target.model === null ? {} : { DROVER_MODEL: target.model }),
        ...(session?.resume === true ? { DROVER_SESSION: session.id } : {}),
      },
    };
  },

  start: (surroundings) => readCustom(surroundings),
};

function readCustom(surroundings: Surroundings): Reader {
  let progress = 0;
  // The end of what it printed, bounded: what it says last is its result.
  let lines: string[] = [];
  let keptCharacters = 0;
  let dropped = false;

  const printed = (): string => lines.join("\n").trim();
  const document = (text: string): Fields | null => {
    if (dropped || !text.startsWith("{")) return null;
    try {
      return fieldsOf(JSON.parse(text));
    } catch {
      return null; // text that begins with a brace
    }
  };

  return {
    line({ text }, now) {
      progress++;
      lines.push(text);
      keptCharacters += text.length + 1;
      if (keptCharacters > surroundings.limits.lineBytes) {
        // Half at a time: to shift one by one would cost as much as all lines for each line.
        dropped = true;
        lines = lines.slice(Math.ceil(lines.length / 2));
        keptCharacters = lines.reduce((sum, line) => sum + line.length + 1, 0);
      }
      return text === "" ? [] : [{ kind: "text", at: now, text }];
    },
    // Whether a model answered is known at the end only.
    reading: () => ({ sessionId: null, progress, answered: false, closed: false, trouble: null }),
    finish({ exit, stderrTail, now }): AgentVerdict {
      const text = printed();
      const said = document(text);
      const result = said === null ? null : at(said, "result");
      const known = {
        text: result !== null ? shownValue(result) : text === "" ? null : text,
        sessionId: textAt(said, "session"),
        usage: usageOf(said),
      };
      const fail = (failure: Parameters<typeof failed>[1]) => failed(known, failure, surroundings, now);
      const error = said === null ? null : at(said, "error");
      if (exit !== 0) return fail(endedWithoutResult(exit, error === null ? lastLine(stderrTail) : shownValue(error)));
      if (error !== null && error !== false) return fail({ class: "exit", message: shownValue(error) });
      if (text === "") return fail({ class: "no_result", message: "exited with 0 and printed nothing" });
      return succeeded(known);
    },
  };
}

function usageOf(said: Fields | null): Usage | null {
  if (fieldsOf(at(said, "usage")) === null) return null;
  return {
    inputTokens: countAt(said, "usage", "input_tokens"),
    cachedInputTokens: countAt(said, "usage", "cached_input_tokens"),
    outputTokens: countAt(said, "usage", "output_tokens"),
    costUsd: numberAt(said, "usage", "cost_usd"),
  };
}
