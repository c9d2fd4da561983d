/** Codex: `codex exec`, tried with the versions in `tested`. */
import type { AgentReading, AgentVerdict, TranscriptEntry, Usage } from "../../core/agent.ts";
import { AppError } from "../../core/errors.ts";
import type { Permission } from "../../core/target.ts";
import type { CommitAccess } from "../worktrees/commit-access.ts";
import type { Adapter, Reader, Surroundings } from "./adapter.ts";
import { at, countAt, type Fields, fieldsOf, listAt, numberAt, shownValue, textAt } from "./event-fields.ts";
import { classifyText, statusIn } from "./failure-text.ts";
import { contradicted, endedWithoutResult, type Failure, failed, lastLine, succeeded } from "./verdict.ts";

const SANDBOX: { readonly [P in Permission]: string } = {
  "read-only": "read-only",
  "workspace-write": "workspace-write",
  full: "danger-full-access",
};

/** Variables that it takes a key from, without a login. */
const KEY_VARIABLES = ["CODEX_API_KEY", "CODEX_ACCESS_TOKEN"] as const;

export const codex: Adapter = {
  provider: "codex",
  program: "codex",
  install: "Install Codex, as with `npm install -g @openai/codex`",
  // Not OPENAI_BASE_URL: Codex itself does not look at it, so an inherited one was meant for another program, and would
  // be sent the user's login.
  keys: [...KEY_VARIABLES, "OPENAI_API_KEY", "OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_HOME"],
  secretKeys: [...KEY_VARIABLES, "OPENAI_API_KEY"],
  homeVariable: "CODEX_HOME",
  // Everything is said by argument: it has no variables for this.
  off: {},
  tested: { min: "0.171.0", below: "0.172.0" },
  versionArgs: ["--version"],
  loginArgs: ["login"],
  probeLogin: {
    args: ["login", "status"],
    read({ exit, stdout, stderr, environment }) {
      // Its own answer is about stored logins only.
      const key = KEY_VARIABLES.find((name) => (environment[name] ?? "") !== "");
      if (key !== undefined) return { loggedIn: true, detail: `a key in ${key}` };
      const said = lastLine(stdout) ?? lastLine(stderr) ?? "";
      if (exit === 0)
        return { loggedIn: true, detail: /using .{1,40}$/i.exec(said)?.[0].replace(/ - .*$/, "") ?? "logged in" };
      return /not logged in/i.test(`${stdout}\n${stderr}`)
        ? { loggedIn: false, detail: "not logged in" }
        : { loggedIn: false, detail: "did not say whether it is logged in" };
    },
  },
  capabilities: {
    resume: true,
    fork: true,
    presetSession: false,
    permissions: ["read-only", "workspace-write", "full"],
    promptBy: "stdin",
    promptLimits: { utf8: true, characters: 1_048_576 },
    commitsInCheckout: false,
    usage: true,
    cost: false,
    jsonEvents: true,
    concurrentHomes: true,
  },
  // It renews a login that has run out before it names its session, without looking whether another one does: of eight at
  // once one had the new login, and seven had sent a token that counts once (seen with 0.171.0).
  serialStarts: true,
  // Of helpers that it puts into its own home, and does without.
  noise: /^WARNING: proceeding, even though we could not (?:create|update) PATH/i,

  build({ target, program, session, environment, isRoot, commit = null }) {
    if (target.permission === "full" && isRoot && !target.allowRoot)
      throw new AppError("invalid", "agent_refused", "full permission as root needs to be allowed in so many words", {
        hint: "Run the daemon as another user, or say --allow-root where that is meant.",
        path: "allowRoot",
      });
    const resumed = session?.resume === true;
    return {
      argv: [
        program,
        "exec",
        ...(resumed ? [session.fork === true ? "fork" : "resume"] : []),
        "--json",
        "--skip-git-repo-check",
        // `resume` and `fork` have no -s.
        ...(target.permission === "workspace-write" && commit !== null
          ? committing(commit)
          : set("sandbox_mode", SANDBOX[target.permission])),
        // Else a refused connection is waited for without end.
        ...set("features.unbounded_connection_retries", false),
        ...set("check_for_update_on_startup", false),
        ...set("analytics.enabled", false),
        ...baseAddress(environment["OPENAI_BASE_URL"]),
        ...(target.model === null ? [] : [`--model=${target.model}`]),
        ...(resumed ? [session.id] : []),
        // The prompt comes on standard input.
        "-",
      ],
      env: {},
    };
  },

  start: (surroundings) => readCodex(surroundings),
};

/** An override of its configuration; texts as TOML, which reads them as JSON does. */
const set = (key: string, value: string | boolean | number): readonly string[] => [
  "-c",
  `${key}=${JSON.stringify(value)}`,
];

/**
 * Its sandbox for a workspace, and what a commit needs besides: that alone keeps a tree's part of the repository read-only,
 * so that `git add` fails. A profile, since `sandbox_workspace_write.writable_roots` opens folders only whole, with the files
 * in them that lead git to other configurations. It is in force whatever `sandbox_mode` the user's own configuration says;
 * what that says in `[permissions.drover]` is added (all seen with 0.171.0).
 */
function committing({ writes, keeps }: CommitAccess): readonly string[] {
  const entries = [
    ...writes.map((path) => [path, "write"] as const),
    ...keeps.map((path) => [path, "read"] as const),
  ].map(([path, access]) => `${JSON.stringify(path)}=${JSON.stringify(access)}`);
  return [
    ...set("default_permissions", "drover"),
    ...set("permissions.drover.extends", ":workspace"),
    "-c",
    `permissions.drover.filesystem={${entries.join(",")}}`,
  ];
}

/**
 * A base address that was set for this account or target. It becomes a provider of its own: the retries of the built-in
 * one cannot be shortened, and it tries a WebSocket for six seconds first. Errors: AppError `env_invalid`.
 */
function baseAddress(address: string | undefined): readonly string[] {
  if (address === undefined || address === "") return [];
  if (!URL.canParse(address) || new URL(address).username !== "" || new URL(address).password !== "")
    throw new AppError("invalid", "env_invalid", "OPENAI_BASE_URL is no address, or holds a name or password", {
      hint: "It goes on a command line, which every user of this machine can read: put keys into CODEX_API_KEY.",
      path: "env.OPENAI_BASE_URL",
    });
  const provider = "model_providers.drover";
  return [
    ...set("model_provider", "drover"),
    ...set(`${provider}.name`, "drover"),
    ...set(`${provider}.base_url`, address),
    ...set(`${provider}.wire_api`, "responses"),
    ...set(`${provider}.requires_openai_auth`, true),
    ...set(`${provider}.request_max_retries`, 1),
    ...set(`${provider}.stream_max_retries`, 1),
    ...set(`${provider}.stream_idle_timeout_ms`, 180_000),
  ];
}

const SESSION_GONE = /no rollout found for thread id|thread\/resume failed|no (?:session|thread|conversation) found/i;
/** What the program says before it has begun, and would say every time. */
const CANNOT_START =
  /not valid utf-8|error loading config|not inside a trusted directory|unexpected argument|invalid value/i;
/** It takes prompts of 1,048,576 characters; it says so when the session has begun, and a backtrace follows. */
const TOO_LONG = /input exceeds the maximum length of .*/i;
/** Said at each start with a model that is newer than it is: it goes on with what it knows of others. */
const UNKNOWN_MODEL = /^model metadata for .* not found\. defaulting to fallback/is;
const RECONNECTING = /^reconnecting\.{3}\s*(?:\d+\/\d+|waiting for network)?\s*(?:\((.*)\))?/is;

function readCodex(surroundings: Surroundings): Reader {
  let sessionId: string | null = null;
  let progress = 0;
  let answered = false;
  let trouble: AgentReading["trouble"] = null;
  let end: "completed" | "failed" | null = null;
  let lastError: string | null = null;
  let lastText: string | null = null;
  let usage: Usage | null = null;
  const begun = new Set<string>();
  const refused = new Set<string>();

  const worked = (): void => {
    progress++;
    answered = true;
    trouble = null;
    lastError = null;
  };

  const failing = (message: string, now: number): readonly TranscriptEntry[] => {
    const again = RECONNECTING.exec(message);
    if (again !== null) {
      trouble = { class: classifyText(again[1] ?? "") ?? "network", message };
      return [{ kind: "error", at: now, text: message, final: false }];
    }
    lastError = message;
    return [{ kind: "error", at: now, text: message, final: true }];
  };

  const item = (event: Fields, isOver: boolean, now: number): readonly TranscriptEntry[] => {
    const it = fieldsOf(event["item"]);
    const kind = textAt(it, "type") ?? textAt(it, "item_type");
    const id = textAt(it, "id") ?? "";
    if (it === null || kind === null) return [];
    if (kind === "error") {
      const text = textAt(it, "message") ?? "unknown";
      if (UNKNOWN_MODEL.test(text)) return [];
      // A warning: what ends a turn comes as an event of its own.
      return isOver ? [{ kind: "error", at: now, text, final: false }] : [];
    }
    worked();
    if (kind === "agent_message" || kind === "assistant_message") {
      const text = textAt(it, "text");
      if (!isOver || text === null) return [];
      lastText = text;
      return [{ kind: "text", at: now, text }];
    }
    if (kind === "reasoning") {
      const text = textAt(it, "text");
      return !isOver || text === null ? [] : [{ kind: "thinking", at: now, text }];
    }
    if (kind === "todo_list") return [];
    const entries: TranscriptEntry[] = [];
    if (!begun.has(id)) {
      // Bounded: an id is forgotten when its item is over.
      if (!isOver) begun.add(id);
      entries.push({ kind: "tool_call", at: now, id, tool: toolOf(it, kind), input: inputOf(it) });
    }
    if (!isOver) return entries;
    begun.delete(id);
    const status = textAt(it, "status");
    if (status === "declined") refused.add(toolOf(it, kind));
    const code = numberAt(it, "exit_code");
    const ok = status !== "failed" && status !== "declined" && (code === null || code === 0);
    entries.push({ kind: "tool_result", at: now, id, ok, text: outputOf(it, code) });
    return entries;
  };

  return {
    line({ event, text }, now) {
      if (event === null) return text === "" ? [] : [{ kind: "note", at: now, text }];
      switch (event["type"]) {
        case "thread.started":
          sessionId = textAt(event, "thread_id") ?? sessionId;
          return sessionId === null ? [] : [{ kind: "session", at: now, sessionId, model: null }];
        case "turn.started":
          end = null;
          return [];
        case "item.started":
        case "item.updated":
          return item(event, false, now);
        case "item.completed":
          return item(event, true, now);
        case "turn.completed":
          end = "completed";
          answered = true;
          trouble = null;
          lastError = null;
          usage = usageOf(event) ?? usage;
          return [
            ...(usage === null ? [] : [{ kind: "usage", at: now, usage } as const]),
            { kind: "result", at: now, ok: refused.size === 0, text: lastText ?? "" },
          ];
        case "turn.failed": {
          end = "failed";
          trouble = null;
          lastError = textAt(event, "error", "message") ?? lastError ?? "the turn failed";
          return [{ kind: "result", at: now, ok: false, text: lastError }];
        }
        case "error":
          return failing(textAt(event, "message") ?? "unknown", now);
        default:
          return [];
      }
    },
    reading: () => ({ sessionId, progress, answered, closed: end !== null, trouble }),
    finish({ exit, stderrTail, now }): AgentVerdict {
      const known = { text: lastText, sessionId, usage };
      const fail = (failure: Failure) => failed(known, failure, surroundings, now);
      if (end === "completed") {
        const tools = [...refused];
        if (tools.length > 0)
          return fail({ class: "refused", message: `refused to it: ${tools.join(", ")}`, refusedTools: tools });
        return exit !== null && exit !== 0 ? fail(contradicted(exit)) : succeeded(known);
      }
      if (end === null && SESSION_GONE.test(stderrTail))
        return {
          ...failed(
            { ...known, sessionId: null },
            { class: "protocol", message: `the session cannot be used: ${lastLine(stderrTail) ?? ""}` },
            surroundings,
            now,
          ),
          sessionGone: true,
        };
      if (lastError !== null) {
        const found = classifyText(lastError);
        // Without its end an error is the reason only where it says something.
        if (end === "failed" || found !== null)
          return fail({
            class: found ?? "unknown",
            message: lastError,
            httpStatus: statusIn(lastError),
            refusedTools: [...refused],
          });
      }
      const tooLong = TOO_LONG.exec(stderrTail)?.[0];
      if (progress === 0 && tooLong !== undefined) return fail({ class: "env_invalid", message: tooLong });
      if (progress === 0 && sessionId === null && CANNOT_START.test(stderrTail))
        return fail({ class: "env_invalid", message: lastLine(stderrTail) ?? "" });
      return fail(endedWithoutResult(exit, trouble?.message ?? lastLine(stderrTail)));
    },
  };
}

function toolOf(item: Fields, kind: string): string {
  if (kind === "mcp_tool_call")
    return [textAt(item, "server"), textAt(item, "tool")].filter((part) => part !== null).join(".");
  return kind === "command_execution" ? "command" : kind;
}

function inputOf(item: Fields): string {
  const told =
    textAt(item, "command") ??
    textAt(item, "query") ??
    (at(item, "arguments") === null ? null : shownValue(at(item, "arguments")));
  if (told !== null) return told;
  const changes = listAt(item, "changes").map(
    (change) => `${textAt(change, "kind") ?? "change"} ${textAt(change, "path") ?? ""}`,
  );
  return changes.join("\n");
}

function outputOf(item: Fields, code: number | null): string {
  const output = textAt(item, "aggregated_output") ?? textAt(item, "error", "message") ?? "";
  const result = output === "" && at(item, "result") !== null ? shownValue(at(item, "result")) : output;
  return code === null || code === 0 ? result : `exit ${code}${result === "" ? "" : `\n${result}`}`;
}

function usageOf(event: Fields): Usage | null {
  if (fieldsOf(event["usage"]) === null) return null;
  return {
    inputTokens: countAt(event, "usage", "input_tokens"),
    cachedInputTokens: countAt(event, "usage", "cached_input_tokens"),
    outputTokens: countAt(event, "usage", "output_tokens"),
    costUsd: null,
    // A session that is gone on with counts on (seen with 0.171.0).
    of: "session",
  };
}
