/** Claude Code: `claude -p`, tried with the versions in `tested`. */
import type { AgentReading, AgentVerdict, TranscriptEntry, Usage } from "../../core/agent.ts";
import { AppError } from "../../core/errors.ts";
import type { FailureClass } from "../../core/run.ts";
import type { Permission } from "../../core/target.ts";
import type { Adapter, Reader, Surroundings } from "./adapter.ts";
import { at, countAt, type Fields, fieldsOf, listAt, numberAt, oneLine, shownValue, textAt } from "./event-fields.ts";
import { classifyStatus, classifyText } from "./failure-text.ts";
import { resetTime, windowOf } from "./reset-time.ts";
import { contradicted, endedWithoutResult, type Failure, failed, lastLine, succeeded } from "./verdict.ts";

/** Tools that only read; without a shell, because no rule tells a command that reads from one that writes. */
const READING = "Read,Glob,Grep,WebFetch,WebSearch,Task,Skill";

/** Tools that would keep a clock or make trees of their own: both are ours. */
const OURS = "CronCreate,CronDelete,CronList,ScheduleWakeup,RemoteTrigger,EnterWorktree,ExitWorktree";

/**
 * `read-only` takes the writing tools away, so that rules of the user's own settings cannot give them back.
 * `workspace-write` lets the file tools write below the working folder and lets every command run, tests included:
 * a command is bounded by the user's own rights only.
 */
const PERMISSIONS: { readonly [P in Permission]: readonly string[] } = {
  "read-only": ["--permission-mode", "dontAsk", "--tools", READING, "--allowedTools", READING, "--strict-mcp-config"],
  "workspace-write": [
    "--permission-mode",
    "acceptEdits",
    "--allowedTools",
    `Bash,Monitor,${READING}`,
    "--disallowedTools",
    OURS,
  ],
  full: ["--dangerously-skip-permissions", "--disallowedTools", OURS],
};

export const claude: Adapter = {
  provider: "claude",
  program: "claude",
  install: "Install Claude Code, as with `npm install -g @anthropic-ai/claude-code`",
  keys: [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
  ],
  secretKeys: ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "CLAUDE_CODE_OAUTH_TOKEN"],
  homeVariable: "CLAUDE_CONFIG_DIR",
  off: {
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    DISABLE_TELEMETRY: "1",
    DISABLE_ERROR_REPORTING: "1",
    // Its own timers: what a project has scheduled in it would run beside the loops.
    CLAUDE_CODE_DISABLE_CRON: "1",
    // Ten by default, over three minutes.
    CLAUDE_CODE_MAX_RETRIES: "2",
    // A stream that breaks is no reason to ask for the whole answer again without one.
    CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK: "1",
    // To the answer's head; ten minutes by default.
    API_TIMEOUT_MS: "300000",
    // Silence within an answer; five minutes by default.
    CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS: "180000",
  },
  tested: { min: "2.1.197", below: "2.2.0" },
  versionArgs: ["--version"],
  loginArgs: ["auth", "login"],
  probeLogin: {
    args: ["auth", "status"],
    read({ stdout }) {
      let answer: unknown = null;
      try {
        answer = JSON.parse(stdout);
      } catch {
        return { loggedIn: false, detail: "did not say whether it is logged in" };
      }
      const how = textAt(answer, "authMethod") ?? "unknown";
      return at(answer, "loggedIn") === true
        ? { loggedIn: true, detail: `logged in (${how})` }
        : { loggedIn: false, detail: "not logged in" };
    },
  },
  capabilities: {
    resume: true,
    fork: true,
    presetSession: true,
    permissions: ["read-only", "workspace-write", "full"],
    promptBy: "stdin",
    // What is no UTF-8 in it is replaced.
    promptLimits: { utf8: false, characters: 10 * 1_048_576 },
    commitsInCheckout: true,
    usage: true,
    cost: true,
    jsonEvents: true,
    concurrentHomes: true,
  },
  serialStarts: false,
  noise: null,

  build({ target, program, session, isRoot }) {
    if (target.permission === "full" && isRoot && !target.allowRoot)
      throw new AppError("invalid", "agent_refused", "Claude Code with full permission refuses to work as root", {
        hint: "Run the daemon as another user, or say --allow-root where that is meant.",
        path: "allowRoot",
      });
    return {
      argv: [
        program,
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        ...(session === null ? [] : [session.resume ? "--resume" : "--session-id", session.id]),
        ...(session?.resume === true && session.fork === true ? ["--fork-session"] : []),
        // One word, because a value may begin with a dash.
        ...(target.model === null ? [] : [`--model=${target.model}`]),
        ...PERMISSIONS[target.permission],
      ],
      env: target.permission === "full" && isRoot ? { IS_SANDBOX: "1" } : {},
    };
  },

  start: (surroundings) => readClaude(surroundings),
};

/** The session that it was to go on with is not there. */
const SESSION_GONE = /no conversation found with session id/i;
/** The one that it was to begin, or to go on with, is somebody's. */
const SESSION_USED = /session id .{1,80} is already in use/i;

/** What the program says before it has begun, and would say every time: whole lines. It takes 10 MB on standard input. */
const CANNOT_START = /^.*(?:cannot be used with root|piped stdin input exceeds).*$/im;

function readClaude(surroundings: Surroundings): Reader {
  let sessionId: string | null = null;
  let progress = 0;
  let answered = false;
  let trouble: AgentReading["trouble"] = null;
  let result: Fields | null = null;
  let apiError: Fields | null = null;
  let limit: Fields | null = null;
  let lastText: string | null = null;
  const refused = new Set<string>();

  const worked = (): void => {
    progress++;
    trouble = null;
    apiError = null;
  };

  const system = (event: Fields, now: number): readonly TranscriptEntry[] => {
    switch (event["subtype"]) {
      case "init": {
        sessionId = textAt(event, "session_id") ?? sessionId;
        if (sessionId === null) return [];
        return [{ kind: "session", at: now, sessionId, model: textAt(event, "model") }];
      }
      case "api_retry": {
        const status = numberAt(event, "error_status");
        const words = textAt(event, "error") ?? "unknown";
        const message = `tries again by itself (${numberAt(event, "attempt") ?? "?"}/${numberAt(event, "max_retries") ?? "?"}): ${words}${status === null ? "" : ` ${status}`}`;
        trouble = { class: classOf({ error: words, status, text: words }) ?? "network", message };
        return [{ kind: "error", at: now, text: message, final: false }];
      }
      case "permission_denied": {
        worked();
        const tool = textAt(event, "tool_name") ?? "a tool";
        refused.add(tool);
        return [{ kind: "note", at: now, text: `refused: ${tool}: ${textAt(event, "message") ?? "no reason given"}` }];
      }
      case "task_started":
      case "task_progress":
      case "task_notification":
      case "compact_boundary":
        worked();
        return [];
      default:
        // A status that repeats itself must not look like work.
        return [];
    }
  };

  const assistant = (event: Fields, now: number): readonly TranscriptEntry[] => {
    const blocks = listAt(event, "message", "content");
    if (event["is_api_error_message"] === true) {
      apiError = event;
      const text = blocks.map((block) => textAt(block, "text") ?? "").join("\n");
      return [{ kind: "error", at: now, text: text || (textAt(event, "error") ?? "unknown"), final: true }];
    }
    worked();
    const bySubagent = textAt(event, "parent_tool_use_id") !== null;
    // It goes on after a result: something that it had left running has woken it.
    if (!bySubagent) result = null;
    if (textAt(event, "message", "model") !== "<synthetic>") answered = true;
    return blocks.flatMap((block): TranscriptEntry[] => {
      switch (at(block, "type")) {
        case "text": {
          const text = textAt(block, "text");
          if (text === null) return [];
          if (!bySubagent) lastText = text;
          return [{ kind: "text", at: now, text }];
        }
        case "thinking": {
          const text = textAt(block, "thinking");
          return text === null ? [] : [{ kind: "thinking", at: now, text }];
        }
        case "tool_use":
          return [
            {
              kind: "tool_call",
              at: now,
              id: textAt(block, "id") ?? "",
              tool: textAt(block, "name") ?? "unknown",
              input: shownValue(at(block, "input")),
            },
          ];
        default:
          return [];
      }
    });
  };

  const user = (event: Fields, now: number): readonly TranscriptEntry[] => {
    const results = listAt(event, "message", "content").filter((block) => at(block, "type") === "tool_result");
    if (results.length > 0) worked();
    return results.map((block) => ({
      kind: "tool_result",
      at: now,
      id: textAt(block, "tool_use_id") ?? "",
      ok: at(block, "is_error") !== true,
      text: contentText(at(block, "content")),
    }));
  };

  const limitOf = (info: unknown, text: string | null) => {
    const value = numberAt(info, "resetsAt");
    return {
      field: value === null ? null : { name: "resetsAt", value },
      ...(text === null ? {} : { text }),
      windowMs: windowOf(textAt(info, "rateLimitType")),
    };
  };

  const rateLimit = (event: Fields, now: number): readonly TranscriptEntry[] => {
    const info = fieldsOf(at(event, "rate_limit_info"));
    const status = textAt(info, "status");
    if (info === null || status === null || status === "allowed") return [];
    const kind = (textAt(info, "rateLimitType") ?? "rate").replaceAll("_", " ");
    if (status !== "rejected")
      return [{ kind: "note", at: now, text: `${kind} limit: ${status.replaceAll("_", " ")}` }];
    limit = info;
    const reset = resetTime(limitOf(info, null), {
      now,
      zone: surroundings.zone,
      longestMs: surroundings.limits.quotaLongestMs,
    });
    return [{ kind: "limit", at: now, text: `${kind} limit: rejected`, resetAt: reset?.at ?? null }];
  };

  const closing = (event: Fields, now: number): readonly TranscriptEntry[] => {
    result = event;
    trouble = null;
    for (const denial of listAt(event, "permission_denials")) refused.add(textAt(denial, "tool_name") ?? "a tool");
    // Where there was no session to go on with, the id that it names is one of nothing.
    if (sessionId === null && sessionTrouble(errorsOf(event)) === null) sessionId = textAt(event, "session_id");
    const usage = usageOf(event);
    const failure = judge(event);
    const text = textAt(event, "result") ?? errorsOf(event);
    return [
      ...(usage === null ? [] : [{ kind: "usage", at: now, usage } as const]),
      { kind: "result", at: now, ok: failure === null, text: failure === null ? text : failure.message },
    ];
  };

  /** What the closing event says, with the error before it; null when it is success. */
  const judge = (event: Fields): Failure | null => {
    const text = textAt(event, "result") ?? errorsOf(event);
    const subtype = textAt(event, "subtype");
    const terminal = textAt(event, "terminal_reason");
    const isError =
      event["is_error"] !== false || subtype !== "success" || (terminal !== null && terminal !== "completed");
    if (!isError) {
      if (refused.size > 0) {
        const tools = [...refused];
        return { class: "refused", message: `refused to it: ${tools.join(", ")}`, refusedTools: tools };
      }
      // A prompt that begins like one of its own commands is answered by the program, not by a model.
      if (numberAt(event, "num_turns") === 0 && !answered)
        return {
          class: "no_result",
          message: `no model was asked: ${oneLine(text) || "the prompt was a command of its own"}`,
        };
      return null;
    }
    const status = numberAt(event, "api_error_status") ?? numberAt(apiError, "api_error_status");
    const found = classOf({
      error: textAt(apiError, "error"),
      apiError: textAt(event, "api_error") ?? textAt(apiError, "api_error"),
      status,
      terminal,
      subtype,
      text,
    });
    const info = fieldsOf(at(apiError, "api_error_params", "rate_limit_info")) ?? limit;
    return {
      class: found ?? "unknown",
      message: oneLine(text) || `ended with ${subtype ?? "an error"}${terminal === null ? "" : ` (${terminal})`}`,
      httpStatus: status,
      refusedTools: [...refused],
      reset: limitOf(info, text),
    };
  };

  return {
    line({ event, text }, now) {
      if (event === null) return text === "" ? [] : [{ kind: "note", at: now, text }];
      switch (event["type"]) {
        case "system":
          return system(event, now);
        case "assistant":
          return assistant(event, now);
        case "user":
          return user(event, now);
        case "stream_event":
          worked();
          return [];
        case "rate_limit_event":
          return rateLimit(event, now);
        case "result":
          return closing(event, now);
        default:
          // A newer version may say more.
          return [];
      }
    },
    reading: () => ({ sessionId, progress, answered, closed: result !== null, trouble }),
    finish({ exit, stderrTail, now }): AgentVerdict {
      const usage = result === null ? null : usageOf(result);
      const known = { text: lastText, sessionId, usage };
      const fail = (failure: Failure) => failed(known, failure, surroundings, now);
      const session = sessionTrouble(stderrTail) ?? (result === null ? null : sessionTrouble(errorsOf(result)));
      if (session !== null)
        return {
          ...failed(
            { ...known, sessionId: null },
            { class: "protocol", message: `the session cannot be used: ${lastLine(stderrTail) ?? errorsOf(result)}` },
            surroundings,
            now,
          ),
          ...session,
        };
      if (result !== null) {
        const failure = judge(result);
        if (failure !== null) return fail(failure);
        if (exit !== null && exit !== 0) return fail(contradicted(exit));
        return succeeded({ ...known, text: textAt(result, "result") ?? lastText });
      }
      if (apiError !== null) {
        // It had no time to close, but what stopped it was said.
        const text = listAt(apiError, "message", "content")
          .map((block) => textAt(block, "text") ?? "")
          .join("\n");
        const status = numberAt(apiError, "api_error_status");
        const error = textAt(apiError, "error");
        const found = classOf({ error, apiError: textAt(apiError, "api_error"), status, text });
        const info = at(apiError, "api_error_params", "rate_limit_info") ?? limit;
        if (found !== null)
          return fail({ class: found, message: text || (error ?? ""), httpStatus: status, reset: limitOf(info, text) });
      }
      const refusal = CANNOT_START.exec(stderrTail)?.[0];
      if (refusal !== undefined) return fail({ class: "env_invalid", message: refusal.trim() });
      return fail(endedWithoutResult(exit, trouble?.message ?? lastLine(stderrTail)));
    },
  };
}

/** Why a session cannot be used, by what was said; null when nothing is said of that. */
function sessionTrouble(text: string): Pick<AgentVerdict, "sessionGone" | "sessionUsed"> | null {
  if (SESSION_GONE.test(text)) return { sessionGone: true };
  return SESSION_USED.test(text) ? { sessionUsed: true } : null;
}

const errorsOf = (event: Fields | null): string => listAt(event, "errors").map(shownValue).join("\n");

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content === null ? "" : shownValue(content);
  return content
    .map(
      (block) =>
        textAt(block, "text") ?? (at(block, "type") === "text" ? "" : `[${textAt(block, "type") ?? "something"}]`),
    )
    .join("\n");
}

function usageOf(event: Fields): Usage | null {
  if (fieldsOf(event["usage"]) === null) return null;
  return {
    inputTokens: countAt(event, "usage", "input_tokens") + countAt(event, "usage", "cache_creation_input_tokens"),
    cachedInputTokens: countAt(event, "usage", "cache_read_input_tokens"),
    outputTokens: countAt(event, "usage", "output_tokens"),
    costUsd: numberAt(event, "total_cost_usd"),
    // A session that is gone on with keeps its price, while its tokens begin anew (seen with 2.1.332).
    costOf: "session",
  };
}

interface Said {
  readonly error?: string | null;
  readonly apiError?: string | null;
  readonly status?: number | null;
  readonly terminal?: string | null;
  readonly subtype?: string | null;
  readonly text: string;
}

/** Its own words for errors. A credit balance heals by itself once somebody pays: that is a quota, not a login. */
const BY_WORD: Readonly<Record<string, FailureClass>> = {
  authentication_failed: "auth",
  oauth_org_not_allowed: "auth",
  billing_error: "quota",
  // Nobody but a person can name another model: it is never tried again as it is.
  model_not_found: "env_invalid",
  overloaded: "overloaded",
};

/** Fields before texts, the special before the general; null when nothing is known. */
function classOf({ error, apiError, status = null, terminal, subtype, text }: Said): FailureClass | null {
  if (terminal === "prompt_too_long") return "context";
  if (subtype === "error_max_turns" || terminal === "max_turns") return "turn_limit";
  if (subtype === "error_max_budget_usd" || terminal === "budget_exhausted") return "budget";
  if (apiError === "usage_limit_reached") return "quota";
  if (apiError === "connection_failed") return "network";
  const byWord = error == null ? undefined : BY_WORD[error];
  if (byWord !== undefined) return byWord;
  const byText = classifyText(text);
  // One word of theirs stands for a short throttle and for a usage limit.
  if (error === "rate_limit") return byText === "quota" ? "quota" : "rate_limited";
  const byStatus = classifyStatus(status);
  if (byText === "context" || byText === "quota") return byText;
  if (byStatus !== null) return byStatus;
  if (error === "server_error") return byText ?? "overloaded";
  if (byText !== null) return byText;
  if (subtype === "error_during_execution" && terminal?.startsWith("aborted") === true) return "signal";
  return null;
}
