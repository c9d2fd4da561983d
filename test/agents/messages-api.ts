/** Anthropic Messages, as Claude Code speaks it. */
import type { Answer, Fault, Heard, ModelApi, Refusal, StreamEvent, Talk, ToolCall } from "./model-api.ts";
import { list, members, talkOf, text, USAGE } from "./model-api.ts";

const usage = (outputTokens: number) => ({
  input_tokens: USAGE.input,
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: USAGE.cached,
  output_tokens: outputTokens,
});

/** Each with its type inside, as the real API sends them. */
const event = (name: string, data: Record<string, unknown> = {}): StreamEvent => ({
  event: name,
  data: { type: name, ...data },
});

function* heard(request: Readonly<Record<string, unknown>>): Iterable<Heard> {
  for (const message of list(request["messages"]).map(members)) {
    if (message["role"] !== "user") continue;
    const content = message["content"];
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : list(content).map(members);
    for (const block of blocks) {
      const said = text(block["text"]);
      if (block["type"] === "tool_result") yield { kind: "result" };
      else if (block["type"] === "text")
        yield { kind: "text", text: said, notice: said.trimStart().startsWith("<system-reminder>") };
    }
  }
}

const call = (talk: Talk, name: string, input: Record<string, unknown>): ToolCall | null =>
  talk.tools.includes(name) ? { id: `toolu_${talk.allResults + 1}`, name, input } : null;

function stream({ text: said, tool }: Answer, model: string): StreamEvent[] {
  return [
    event("message_start", {
      message: {
        id: "msg_1",
        type: "message",
        role: "assistant",
        model,
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage: usage(1),
      },
    }),
    event("content_block_start", { index: 0, content_block: { type: "text", text: "" } }),
    event("ping"),
    event("content_block_delta", { index: 0, delta: { type: "text_delta", text: said } }),
    event("content_block_stop", { index: 0 }),
    ...(tool === null
      ? []
      : [
          event("content_block_start", {
            index: 1,
            content_block: { type: "tool_use", id: tool.id, name: tool.name, input: {} },
          }),
          event("content_block_delta", {
            index: 1,
            delta: { type: "input_json_delta", partial_json: JSON.stringify(tool.input) },
          }),
          event("content_block_stop", { index: 1 }),
        ]),
    event("message_delta", {
      delta: { stop_reason: tool === null ? "end_turn" : "tool_use", stop_sequence: null },
      usage: usage(USAGE.output),
    }),
    event("message_stop"),
  ];
}

const error = (
  status: number,
  type: string,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): Refusal => ({ status, headers, body: { type: "error", error: { type, message }, request_id: "req_fake" } });

function refusal(fault: Fault): Refusal {
  switch (fault.kind) {
    case "rate_limit":
      return error(429, "rate_limit_error", "This request would exceed your account's rate limit.", {
        "retry-after": String(fault.retryAfterSeconds),
      });
    case "usage_limit": {
      const resetAt = String(fault.resetAtSeconds);
      return error(429, "rate_limit_error", "You've hit your 5-hour limit", {
        "retry-after": String(Math.max(1, fault.resetAtSeconds - fault.nowSeconds)),
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": resetAt,
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-5h-status": "rejected",
        "anthropic-ratelimit-unified-5h-reset": resetAt,
        "anthropic-ratelimit-unified-5h-utilization": "1.0",
      });
    }
    case "auth":
      return error(401, "authentication_error", "invalid x-api-key");
    case "forbidden":
      return error(403, "permission_error", "Your account does not have permission to use this.");
    case "no_model":
      return error(404, "not_found_error", "model: no such model");
    case "server":
      return error(500, "api_error", "Internal server error");
    case "overloaded":
      return error(529, "overloaded_error", "Overloaded");
    case "credit":
      return error(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.");
    case "context":
      return error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum");
  }
}

/** `POST <base>/v1/messages` */
export const messagesApi: ModelApi = {
  pathEnd: "/messages",
  read: (body) => talkOf(members(body), heard(members(body))),
  writing: (talk, file, content) => call(talk, "Write", { file_path: file, content }),
  running: (talk, command) => call(talk, "Bash", { command, description: "run what the prompt says" }),
  stream,
  untilText: 4,
  whole: ({ text: said, tool }, model) => ({
    id: "msg_1",
    type: "message",
    role: "assistant",
    model,
    content: [
      { type: "text", text: said },
      ...(tool === null ? [] : [{ type: "tool_use", id: tool.id, name: tool.name, input: tool.input }]),
    ],
    stop_reason: tool === null ? "end_turn" : "tool_use",
    stop_sequence: null,
    usage: usage(USAGE.output),
  }),
  refusal,
  midStreamError: event("error", { error: { type: "overloaded_error", message: "Overloaded" } }),
};
