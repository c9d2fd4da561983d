#!/usr/bin/env node
// @ts-check
/**
 * A scripted agent that behaves at once as real ones do only after minutes, or once in a thousand runs. Linked on a PATH as
 * `claude` or `codex` it speaks that command line's events; under any other name it prints plain text, as a `custom` agent.
 * What it does is said by a line `MODE=name argument` of the prompt, the last one of several, or by the variable
 * STAND_IN_MODE, which is needed where the prompt is not to be read.
 *
 * | mode | what it does |
 * | --- | --- |
 * | `ok [TEXT]` | ends well |
 * | `write FILE` | writes the file, ends well |
 * | `slow MS` | ends well after that time |
 * | `exit N`, `signal NAME` | ends so without an event |
 * | `no-result` | three events, then exit 0 |
 * | `no-result-exit N`, `result-exit N` | the same, or a good result, and then that exit status |
 * | `silence`, `silent-start` | begins and says nothing more; says nothing at all |
 * | `retries` | tells of retries of its own for ever |
 * | `flood-stdout MIB`, `flood-stderr MIB` | prints that much, then ends well |
 * | `no-newline MIB` | one line of that length that is no event, then nothing |
 * | `big-line BYTES`, `big-result BYTES` | a tool's result, or the result itself, of that length |
 * | `lines` | texts in lines of 65535, 65536, 65537 and 131072 bytes; the last line has no end |
 * | `split` | every byte in a write of its own, in the middle of characters too |
 * | `replacement` | U+FFFD three times in a text |
 * | `ansi` | control sequences of terminals in a text, and outside of events |
 * | `noise` | plain lines between its events |
 * | `ignore-term` | begins, and does not end for TERM |
 * | `children` | ends well and leaves a process in a session of its own, which ignores TERM and holds its outputs |
 * | `result-stays` | a good result, then neither it nor its child ends; TERM ends it with 143 |
 * | `result-clings` | the same, and TERM does not end it |
 * | `success-error` | calls it success with an error and a 429 inside |
 * | `denied` | a tool was refused; then success |
 * | `session-used` | refuses to begin under a given id, as if it were used; resuming works |
 * | `session-held` | the same, and resuming that id does not work either: only a copy of it, or another id |
 * | `session-shut` | refuses the first id that it meets in a folder however it is used; another one works |
 * | `session-gone` | refuses to resume; beginning works |
 * | `login` | renews a login that has run out before it begins, with a token that counts once: `login.json` in its home has `token` and `until` |
 * | `usage-limit SECONDS` | the plan's limit, until that instant (seconds since 1970) |
 * | `429`, `401`, `529`, `context` | as real ones say it |
 * | `env [NAME]` | prints its environment, and the value of NAME (FAKE_TOKEN) in two writes |
 * | `unread` | closes its input unread, ends with 1 |
 * | `group` | kills its own process group |
 */
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { closeSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import { basename, join } from "node:path";

const name = basename(process.argv[1] ?? "");
const args = process.argv.slice(2);

/** Versions that the adapters know. */
const VERSIONS = { claude: "2.1.332 (Claude Code)", codex: "codex-cli 0.171.0" };

/** @param {string | Uint8Array} bytes */
const print = (bytes, fd = 1) => {
  let rest = typeof bytes === "string" ? Buffer.from(bytes) : bytes;
  while (rest.length > 0) rest = rest.subarray(writeSync(fd, rest));
};
/** @param {unknown} event */
const send = (event) => print(`${JSON.stringify(event)}\n`);

/** @param {string} flag */
const after = (flag) => {
  const at = args.indexOf(flag);
  return at === -1 ? undefined : args[at + 1];
};
/** Codex: the id comes last, before the dash that stands for standard input. @param {string} word */
const idOf = (word) => (args[1] === word ? args.at(-2) : undefined);
const copied = name === "codex" ? idOf("fork") : args.includes("--fork-session") ? after("--resume") : undefined;
const resumed = copied ?? (name === "codex" ? idOf("resume") : (after("--resume") ?? after("-r")));
const session = (copied === undefined ? (resumed ?? after("--session-id")) : undefined) ?? randomUUID();

const usage = { input_tokens: 1234, cache_read_input_tokens: 100, cache_creation_input_tokens: 0, output_tokens: 7 };
const ids = { session_id: session, uuid: randomUUID() };

/**
 * @typedef {object} Dialect
 * @property {() => void} begin
 * @property {(text: string) => void} text
 * @property {(id: string, output: string, ok: boolean) => void} tool a call and its result
 * @property {() => void} denied a call that was refused
 * @property {(message: string) => void} retry
 * @property {(text: string, denials?: number) => void} result the closing event of a good end
 * @property {(failure: Failure) => void} failed the closing event of a bad one
 */

/** @typedef {{ status: number | null, error: string, message: string, terminal?: string, resetAt?: number }} Failure */

/** @type {Dialect} */
const claude = {
  begin() {
    send({
      type: "system",
      subtype: "init",
      cwd: process.cwd(),
      ...ids,
      tools: [],
      model: "stand-in",
      claude_code_version: "2.1.332",
    });
  },
  text(text) {
    send({
      type: "assistant",
      message: { id: "msg_1", role: "assistant", content: [{ type: "text", text }], usage },
      ...ids,
    });
  },
  tool(id, output, ok) {
    const call = { type: "tool_use", id, name: "Bash", input: { command: "true" } };
    send({ type: "assistant", message: { id: "msg_1", role: "assistant", content: [call], usage }, ...ids });
    const result = { type: "tool_result", tool_use_id: id, content: output, is_error: !ok };
    send({ type: "user", message: { role: "user", content: [result] }, ...ids });
  },
  denied() {
    const message = "Claude requested permissions to write to outside.txt, but you haven't granted it yet.";
    const call = { type: "tool_use", id: "toolu_1", name: "Write", input: { file_path: "outside.txt", content: "x" } };
    send({ type: "assistant", message: { id: "msg_1", role: "assistant", content: [call], usage }, ...ids });
    send({ type: "system", subtype: "permission_denied", tool_name: "Write", tool_use_id: "toolu_1", message, ...ids });
    const result = { type: "tool_result", tool_use_id: "toolu_1", content: message, is_error: true };
    send({ type: "user", message: { role: "user", content: [result] }, ...ids });
  },
  retry(message) {
    send({
      type: "system",
      subtype: "api_retry",
      attempt: 1,
      max_retries: 1,
      retry_delay_ms: 500,
      error_status: null,
      error: message,
      ...ids,
    });
  },
  result(text, denials = 0) {
    const denial = { tool_name: "Write", tool_use_id: "toolu_1", tool_input: { file_path: "outside.txt" } };
    const permission_denials = Array.from({ length: denials }, () => denial);
    const rest = { num_turns: 1, duration_ms: 100, total_cost_usd: 0.0051, usage, permission_denials };
    send({
      ...rest,
      ...ids,
      terminal_reason: "completed",
      api_error_status: null,
      is_error: false,
      subtype: "success",
      result: text,
      type: "result",
    });
  },
  failed({ status, error, message, terminal = "api_error", resetAt }) {
    const limit =
      resetAt === undefined ? undefined : { status: "rejected", resetsAt: resetAt, rateLimitType: "five_hour" };
    if (limit) send({ type: "rate_limit_event", rate_limit_info: limit, ...ids });
    const marks = limit ? { api_error: "usage_limit_reached", api_error_params: { rate_limit_info: limit } } : {};
    const content = [{ type: "text", text: message }];
    const said = {
      model: "<synthetic>",
      role: "assistant",
      content,
      usage: { ...usage, input_tokens: 0, output_tokens: 0 },
    };
    send({
      type: "assistant",
      message: said,
      ...ids,
      error,
      is_api_error_message: true,
      api_error_status: status,
      ...marks,
    });
    const rest = {
      num_turns: 1,
      total_cost_usd: 0,
      usage: { input_tokens: 0, output_tokens: 0 },
      permission_denials: [],
    };
    send({
      ...rest,
      ...ids,
      terminal_reason: terminal,
      is_error: true,
      subtype: "success",
      api_error_status: status,
      result: message,
      type: "result",
    });
  },
};

/** Codex has no field for what went wrong, only words. @type {Readonly<Record<string, string>>} */
const WORDS = {
  429: "exceeded retry limit, last status: 429 Too Many Requests, request id: req_fake",
  401: "unexpected status 401 Unauthorized: Incorrect API key provided., url: http://127.0.0.1/v1/responses",
  529: "Selected model is at capacity. Please try a different model.",
  400: "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
};

/** @type {Dialect} */
const codex = {
  begin() {
    send({ type: "thread.started", thread_id: session });
    send({ type: "turn.started" });
  },
  text(text) {
    send({ type: "item.completed", item: { id: "item_1", type: "agent_message", text } });
  },
  tool(id, output, ok) {
    const item = { id, type: "command_execution", command: "/bin/bash -lc true" };
    send({ type: "item.started", item: { ...item, aggregated_output: "", exit_code: null, status: "in_progress" } });
    const status = ok ? "completed" : "failed";
    send({ type: "item.completed", item: { ...item, aggregated_output: output, exit_code: ok ? 0 : 1, status } });
  },
  denied() {
    codex.tool("item_1", "/bin/bash: line 1: outside.txt: Read-only file system\n", false);
  },
  retry(message) {
    send({ type: "error", message: `Reconnecting... 1/5 (${message})` });
  },
  result(text) {
    codex.text(text);
    const used = {
      input_tokens: 1234,
      cached_input_tokens: 100,
      cache_write_input_tokens: 0,
      output_tokens: 7,
      reasoning_output_tokens: 0,
    };
    send({ type: "turn.completed", usage: used });
  },
  failed({ status, message, resetAt }) {
    const limited = resetAt === undefined ? undefined : ordinal(new Date(resetAt * 1000));
    const words =
      limited === undefined
        ? (WORDS[String(status)] ?? message)
        : `You’ve hit your usage limit. Visit the settings to purchase more credits or try again at ${limited}.`;
    send({ type: "error", message: words });
    send({ type: "turn.failed", error: { message: words } });
  },
};

/** As Codex writes an instant of another day, in the local zone. @param {Date} at */
function ordinal(at) {
  const month = at.toLocaleString("en-US", { month: "short" });
  const day = at.getDate();
  const end =
    day % 10 === 1 && day !== 11
      ? "st"
      : day % 10 === 2 && day !== 12
        ? "nd"
        : day % 10 === 3 && day !== 13
          ? "rd"
          : "th";
  const time = at.toLocaleString("en-US", { hour: "numeric", minute: "2-digit", hour12: true });
  return `${month} ${day}${end}, ${at.getFullYear()} ${time}`;
}

/** Text in, text out. @type {Dialect} */
const custom = {
  begin() {},
  text: (text) => print(`${text}\n`),
  tool: (id, output) => print(`${id}: ${output}\n`),
  denied: () => print("refused\n"),
  retry: (message) => print(`again: ${message}\n`, 2),
  result: (text) => print(`${text}\n`),
  failed: ({ message }) => print(`${message}\n`, 2),
};

const say = name === "claude" ? claude : name === "codex" ? codex : custom;

const MIB = 1024 * 1024;
/** For ever: a timer that is longer than any test. */
const stay = () => setInterval(() => {}, 60_000);
/** A process in a session of its own that holds our outputs. @param {string} script */
const leave = (script) =>
  spawn("/bin/sh", ["-c", script], { detached: true, stdio: ["ignore", "inherit", "inherit"] }).unref();

/** @type {Readonly<Record<string, Failure>>} */
const failures = {
  429: { status: 429, error: "rate_limit", message: "API Error: Request rejected (429) · too many requests" },
  401: { status: 401, error: "authentication_failed", message: "Invalid API key · Fix external API key" },
  529: { status: 529, error: "server_error", message: "API Error: 529 Overloaded." },
  context: { status: 400, error: "invalid_request", message: "Prompt is too long", terminal: "prompt_too_long" },
};

/** @param {string} [text] @param {number} [exit] */
const endWell = (text = "done", exit = 0) => {
  say.result(text);
  process.exitCode = exit;
};

/** @type {Readonly<Record<string, (argument: string) => unknown>>} */
const modes = {
  ok: (text) => endWell(text === "" ? "done" : text),
  write(file) {
    writeFileSync(file, "written by the stand-in\n");
    say.tool("toolu_1", `wrote ${file}`, true);
    endWell();
  },
  slow: (ms) => setTimeout(endWell, Number(ms)),
  "no-result"() {
    say.text("first");
    say.tool("toolu_1", "second", true);
    say.text("third");
  },
  "no-result-exit"(status) {
    modes["no-result"]?.("");
    process.exitCode = Number(status);
  },
  "result-exit": (status) => endWell("done", Number(status)),
  silence: stay,
  retries: () => setInterval(() => say.retry("stream disconnected before completion"), 100),
  "flood-stdout"(mib) {
    const text = "flood ".repeat(170);
    for (let written = 0; written < Number(mib) * MIB; written += text.length) say.text(text);
    endWell();
  },
  "flood-stderr"(mib) {
    const block = Buffer.alloc(MIB, "noise on standard error\n");
    for (let n = 0; n < Number(mib); n++) print(block, 2);
    endWell();
  },
  "no-newline"(mib) {
    const block = Buffer.alloc(MIB, "x");
    for (let n = 0; n < Number(mib); n++) print(block);
  },
  "big-line"(bytes) {
    say.tool("toolu_1", "x".repeat(Number(bytes)), true);
    endWell();
  },
  "big-result": (bytes) => endWell("x".repeat(Number(bytes))),
  lines() {
    const frame = say === codex ? { type: "item.completed", item: { id: "item_1", type: "agent_message" } } : null;
    for (const length of [65535, 65536, 65537, 131072]) {
      /** @param {string} text */
      const line = (text) =>
        JSON.stringify(
          frame
            ? { ...frame, item: { ...frame.item, text } }
            : { type: "assistant", message: { role: "assistant", content: [{ type: "text", text }] }, ...ids },
        );
      print(`${line("x".repeat(length - line("").length))}\n`);
    }
    // The closing event has no end of its line.
    const closing =
      say === codex
        ? { type: "turn.completed", usage: { input_tokens: 1234, cached_input_tokens: 100, output_tokens: 7 } }
        : {
            type: "result",
            subtype: "success",
            is_error: false,
            result: "done",
            terminal_reason: "completed",
            permission_denials: [],
            usage,
            ...ids,
          };
    print(JSON.stringify(closing));
  },
  split() {
    const text = "žluťoučký kůň 🐎 čte";
    const line =
      say === codex
        ? { type: "item.completed", item: { id: "item_1", type: "agent_message", text } }
        : { type: "assistant", message: { role: "assistant", content: [{ type: "text", text }] }, ...ids };
    for (const byte of Buffer.from(`${say === custom ? text : JSON.stringify(line)}\n`)) print(Buffer.of(byte));
    endWell(text);
  },
  replacement() {
    say.text("three \uFFFD\uFFFD\uFFFD of them");
    endWell();
  },
  ansi() {
    const evil =
      "\u001b]0;owned\u0007\u001b[2K\rALL PASSED \u001b]8;;http://x/\u0007link\u001b]8;;\u0007 \u001b]52;c;eA==\u0007 \u009b31m \u202Etxt";
    say.text(evil);
    print(`${evil}\n`);
    print(`${evil}\n`, 2);
    endWell(evil);
  },
  noise() {
    print("Loading plugins...\n\n{not json\n[1,2,3]\nnull\n");
    say.text("between");
    print("\u001b[33mwarning\u001b[0m: something\n");
    endWell();
  },
  "ignore-term": stay,
  children() {
    leave('trap "" TERM; sleep 600 & wait; sleep 600');
    endWell();
  },
  "result-stays"() {
    leave("sleep 600");
    say.result("done");
    stay();
  },
  "result-clings"() {
    leave('trap "" TERM; sleep 600 & wait; sleep 600');
    say.result("done");
    stay();
  },
  "success-error"() {
    say.failed({ status: 429, error: "rate_limit", message: "API Error: Request rejected (429)" });
  },
  denied() {
    say.denied();
    if (say === claude) claude.result("I could not write the file, but all is well.", 1);
    else endWell("I could not write the file, but all is well.");
  },
  "usage-limit"(seconds) {
    const message = "You've hit your 5-hour limit · resets soon";
    say.failed({ status: 429, error: "rate_limit", message, resetAt: Number(seconds) });
    process.exitCode = 1;
  },
  env(token) {
    say.text(
      Object.entries(process.env)
        .map(([key, value]) => `${key}=${value}`)
        .join("\n"),
    );
    const value = process.env[token === "" ? "FAKE_TOKEN" : token] ?? "";
    print(value.slice(0, value.length / 2));
    setImmediate(() => {
      print(`${value.slice(value.length / 2)}\n`);
      endWell(`the token is ${value}`);
    });
  },
  "session-used": () => endWell(),
  "session-held": () => endWell(),
  "session-shut": () => endWell(),
  login: () => endWell(),
  "session-gone": () => endWell(),
};

/** Modes that end or stay without a word. @type {Readonly<Record<string, (argument: string) => unknown>>} */
const wordless = {
  exit: (status) => process.exit(Number(status)),
  signal: (signal) => process.kill(process.pid, signal),
  "silent-start": stay,
  unread() {
    closeSync(0);
    process.exit(1);
  },
  group: () => process.kill(0, "SIGKILL"),
};

/** What some do for TERM. @type {Readonly<Record<string, () => void>>} */
const termed = {
  "ignore-term": () => say.text("not yet"),
  "result-stays": () => process.exit(143),
  "result-clings": () => {},
};

/** Whether the session that it was given is somebody's. @param {string} mode */
function isRefused(mode) {
  if (mode === "session-used") return resumed === undefined && after("--session-id") !== undefined;
  if (mode !== "session-held" && mode !== "session-shut") return false;
  const id = resumed ?? session;
  if (!existsSync("session")) writeFileSync("session", id);
  return readFileSync("session", "utf8") === id && (mode === "session-shut" || copied === undefined);
}

/** Long enough that others who look meanwhile find the old login. */
const RENEWAL_MS = 1_500;

/** Renews the login of its home when it has run out; answers whether it has one then. */
async function renewLogin() {
  const home = process.env["CODEX_HOME"] ?? process.env["CLAUDE_CONFIG_DIR"] ?? "";
  const file = join(home, "login.json");
  const { token, until } = JSON.parse(readFileSync(file, "utf8"));
  if (until > Date.now()) return true;
  await new Promise((done) => setTimeout(done, RENEWAL_MS));
  try {
    mkdirSync(join(home, `spent-${token}`)); // one of all who try it has it
  } catch {
    mkdirSync(join(home, `replayed-${token}-${process.pid}`));
    return false;
  }
  writeFileSync(`${file}.new`, JSON.stringify({ token: token + 1, until: Date.now() + 3_600_000 }));
  renameSync(`${file}.new`, file);
  return true;
}

async function main() {
  if (args.includes("--version")) {
    print(`${VERSIONS[/** @type {keyof typeof VERSIONS} */ (name)] ?? "1.0.0"}\n`);
    return;
  }
  // What doctor asks: `claude auth status`, `codex login status`.
  if (args.includes("status")) {
    print(
      say === claude
        ? `${JSON.stringify({ loggedIn: true, authMethod: "stand-in" })}\n`
        : "Logged in using an API key\n",
    );
    return;
  }
  const given = process.env["STAND_IN_MODE"];
  const prompt = given === undefined ? readFileSync(0, "utf8") : "";
  const chosen = given ?? [...prompt.matchAll(/^MODE=(.*)$/gm)].at(-1)?.[1] ?? "ok";
  const [mode = "ok", ...rest] = chosen.trim().split(" ");
  const argument = rest.join(" ");
  const silently = wordless[mode];
  if (silently) {
    silently(argument);
    return;
  }
  if (given !== undefined) readFileSync(0); // as real ones do, to the end
  if (isRefused(mode)) {
    print(`Error: Session ID ${resumed ?? session} is already in use.\n`, 2);
    process.exit(1);
  }
  if (mode === "session-gone" && resumed !== undefined) {
    print(
      say === codex
        ? `Error: thread/resume: thread/resume failed: no rollout found for thread id ${session} (code -32600)\n`
        : `No conversation found with session ID: ${session}\n`,
      2,
    );
    process.exit(1);
  }
  // Before the first word: a test that has seen one may signal.
  const onTerm = termed[mode];
  if (onTerm) process.on("SIGTERM", onTerm);
  const failure = mode === "login" && !(await renewLogin()) ? failures["401"] : failures[mode];
  say.begin();
  if (failure) {
    say.failed(failure);
    process.exitCode = 1;
    return;
  }
  const act = modes[mode];
  if (act === undefined) {
    print(`the stand-in knows no mode ${mode}\n`, 2);
    process.exit(64);
  }
  act(argument);
}

await main();
