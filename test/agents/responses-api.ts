/** OpenAI Responses, as Codex speaks it. */
import type { Answer, Fault, Heard, ModelApi, Refusal, StreamEvent, Talk, ToolCall } from "./model-api.ts";
import { list, members, talkOf, text, USAGE } from "./model-api.ts";

const usage = {
  input_tokens: USAGE.input,
  input_tokens_details: { cached_tokens: USAGE.cached },
  output_tokens: USAGE.output,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: USAGE.input + USAGE.output,
};

const RESULTS = new Set<unknown>(["function_call_output", "custom_tool_call_output"]);

function* heard(request: Readonly<Record<string, unknown>>): Iterable<Heard> {
  for (const item of list(request["input"]).map(members)) {
    if (RESULTS.has(item["type"])) yield { kind: "result" };
    else if (item["type"] === "message" && item["role"] === "user") {
      const content = item["content"];
      const said = typeof content === "string" ? [content] : list(content).map((part) => text(members(part)["text"]));
      for (const one of said) yield { kind: "text", text: one, notice: one.startsWith("<environment_context>") };
    }
  }
}

/** How long Codex waits for a command before it tells the model that it goes on; the most that it takes. */
const YIELD_MS = 30_000;

const running = (talk: Talk, command: string): ToolCall | null =>
  talk.tools.includes("exec_command")
    ? { id: `call_${talk.allResults + 1}`, name: "exec_command", input: { cmd: command, yield_time_ms: YIELD_MS } }
    : null;

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

const message = (status: string, said: string) => ({
  type: "message",
  id: "msg_1",
  role: "assistant",
  status,
  content: status === "completed" ? [part(said)] : [],
});
const part = (said: string) => ({ type: "output_text", text: said, annotations: [] });
const functionCall = (tool: ToolCall, status: string) => ({
  type: "function_call",
  id: `fc_${tool.id}`,
  call_id: tool.id,
  name: tool.name,
  arguments: status === "completed" ? JSON.stringify(tool.input) : "",
  status,
});

/** What it says, or the tool that it calls: with an unknown model's name Codex wants one item at a time. */
const output = ({ text: said, tool }: Answer): Record<string, unknown>[] =>
  tool === null ? [message("completed", said)] : [functionCall(tool, "completed")];

const response = (model: string, status: string, items: readonly unknown[], more: Record<string, unknown> = {}) => ({
  id: "resp_1",
  object: "response",
  created_at: 1,
  model,
  status,
  output: items,
  ...more,
});

/** Each with its type and its number, as the real API sends them. */
const numbered = (events: readonly (readonly [name: string, data: Record<string, unknown>])[]): StreamEvent[] =>
  events.map(([name, data], at) => ({ event: name, data: { type: name, sequence_number: at, ...data } }));

function stream(answer: Answer, model: string): StreamEvent[] {
  const { text: said, tool } = answer;
  const place = { item_id: "msg_1", output_index: 0, content_index: 0 };
  const items = output(answer);
  return numbered([
    ["response.created", { response: response(model, "in_progress", []) }],
    ...(tool === null
      ? ([
          ["response.output_item.added", { output_index: 0, item: message("in_progress", "") }],
          ["response.content_part.added", { ...place, part: part("") }],
          ["response.output_text.delta", { ...place, delta: said }],
          ["response.output_text.done", { ...place, text: said }],
          ["response.content_part.done", { ...place, part: part(said) }],
        ] as const)
      : ([
          ["response.output_item.added", { output_index: 0, item: functionCall(tool, "in_progress") }],
          [
            "response.function_call_arguments.delta",
            { item_id: `fc_${tool.id}`, output_index: 0, delta: JSON.stringify(tool.input) },
          ],
          [
            "response.function_call_arguments.done",
            { item_id: `fc_${tool.id}`, output_index: 0, arguments: JSON.stringify(tool.input) },
          ],
        ] as const)),
    ["response.output_item.done", { output_index: 0, item: items[0] }],
    ["response.completed", { response: response(model, "completed", items, { usage }) }],
  ]);
}

const error = (
  status: number,
  type: string,
  code: string | null,
  said: string,
  headers: Readonly<Record<string, string>> = {},
): Refusal => ({ status, headers, body: { error: { message: said, type, param: null, code } } });

function refusal(fault: Fault): Refusal {
  switch (fault.kind) {
    case "rate_limit":
      return error(
        429,
        "requests",
        "rate_limit_exceeded",
        `Rate limit reached for the model. Please try again in ${fault.retryAfterSeconds}s.`,
        { "retry-after": String(fault.retryAfterSeconds) },
      );
    case "usage_limit":
      return {
        status: 429,
        headers: {},
        body: {
          error: {
            type: "usage_limit_reached",
            message: "The usage limit has been reached",
            plan_type: "plus",
            resets_at: fault.resetAtSeconds,
            resets_in_seconds: Math.max(1, fault.resetAtSeconds - fault.nowSeconds),
          },
        },
      };
    case "auth":
      return error(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided.");
    case "forbidden":
      return error(403, "invalid_request_error", "forbidden", "Your project may not use this.");
    case "no_model":
      return error(404, "invalid_request_error", "model_not_found", "The model does not exist.");
    case "server":
      return error(500, "server_error", null, "The server had an error while processing your request.");
    case "overloaded":
      return error(503, "server_error", "server_is_overloaded", "The server is overloaded.");
    case "credit":
      return error(429, "insufficient_quota", "insufficient_quota", "You exceeded your current quota.");
    case "context":
      return error(
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 200000 tokens.",
      );
  }
}

/** `POST <base>/responses` */
export const responsesApi: ModelApi = {
  pathEnd: "/responses",
  read: (body) => talkOf(members(body), heard(members(body))),
  writing: (talk, file, content) => running(talk, `printf %s ${quoted(content)} > ${quoted(file)}`),
  running,
  stream,
  untilText: 4,
  whole: (answer, model) => response(model, "completed", output(answer), { usage }),
  refusal,
  midStreamError: {
    event: "response.failed",
    data: {
      type: "response.failed",
      sequence_number: 4,
      response: response("", "failed", [], {
        error: { code: "server_is_overloaded", message: "The server is overloaded." },
      }),
    },
  },
};
