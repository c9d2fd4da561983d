import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOOP_CALLS, type ModelServer, openModelServer } from "./model-server.ts";

let server: ModelServer;
beforeAll(async () => {
  server = await openModelServer();
});
afterAll(() => server.close());

interface Api {
  readonly name: string;
  readonly path: string;
  request(prompt: string, more?: object): Record<string, unknown>;
  /** The history of a conversation in which one call of a tool was answered. */
  afterTool(prompt: string, next?: string): Record<string, unknown>;
}

const apis: readonly Api[] = [
  {
    name: "Messages",
    path: "/v1/messages?beta=true",
    request: (prompt, more = {}) => ({
      model: "m",
      stream: true,
      tools: [{ name: "Write" }, { name: "Bash" }],
      messages: [{ role: "user", content: [{ type: "text", text: prompt }] }],
      ...more,
    }),
    afterTool: (prompt, next) => ({
      messages: [
        { role: "user", content: prompt },
        { role: "assistant", content: [{ type: "tool_use", id: "toolu_1", name: "Write", input: {} }] },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "toolu_1", content: "done" },
            { type: "text", text: "<system-reminder>be tidy</system-reminder>" },
          ],
        },
        ...(next === undefined ? [] : [{ role: "user", content: next }]),
      ],
    }),
  },
  {
    name: "Responses",
    path: "/v1/responses",
    request: (prompt, more = {}) => ({
      model: "m",
      stream: true,
      tools: [{ type: "function", name: "exec_command" }],
      input: [{ type: "message", role: "user", content: [{ type: "input_text", text: prompt }] }],
      ...more,
    }),
    afterTool: (prompt, next) => ({
      input: [
        { type: "message", role: "user", content: [{ type: "input_text", text: prompt }] },
        { type: "function_call", call_id: "call_1", name: "exec_command", arguments: "{}" },
        { type: "function_call_output", call_id: "call_1", output: "done" },
        ...(next === undefined ? [] : [{ type: "message", role: "user", content: [{ text: next }] }]),
      ],
    }),
  },
];

let tests = 0;
const fresh = () => `t${++tests}`;

const post = (scenario: string, id: string, { path }: Api, body: object, signal?: AbortSignal) =>
  fetch(`${server.base(scenario, id)}${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });

/** Names of a stream's events, each with its data. */
const eventsOf = (stream: string) =>
  stream
    .split("\n\n")
    .filter((block) => block !== "")
    .map((block) => {
      const [, event, data] = /^event: (.+)\ndata: (.+)$/.exec(block) ?? [];
      return { event, data: JSON.parse(data ?? "null") as Record<string, unknown> };
    });

const orders = {
  Messages: {
    text: [
      "message_start",
      "content_block_start",
      "ping",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ],
    tool: [
      "message_start",
      "content_block_start",
      "ping",
      "content_block_delta",
      "content_block_stop",
      "content_block_start",
      "content_block_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ],
  },
  Responses: {
    text: [
      "response.created",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ],
    tool: [
      "response.created",
      "response.output_item.added",
      "response.function_call_arguments.delta",
      "response.function_call_arguments.done",
      "response.output_item.done",
      "response.completed",
    ],
  },
} as const;

describe.each(apis)("the model server speaks $name", (api) => {
  const order = orders[api.name as keyof typeof orders];

  test("a text streams in the order that the command lines want", async () => {
    const answer = await post("ok", fresh(), api, api.request("hello"));
    expect(answer.headers.get("content-type")).toBe("text/event-stream");
    const events = eventsOf(await answer.text());
    expect(events.map(({ event }) => event)).toEqual(order.text);
    expect(events.every(({ event, data }) => data["type"] === event)).toBe(true);
    expect(JSON.stringify(events)).toContain('"OK"');
  });

  test("the same answer comes whole where no stream is asked for", async () => {
    const answer = await post("ok", fresh(), api, api.request("hello", { stream: false }));
    expect(await answer.json()).toMatchObject({ model: "m" });
  });

  test("a file is written once for each prompt, by a tool that is offered", async () => {
    const id = fresh();
    const first = await (await post("tool", id, api, api.request("please FILE=/tmp/x TEXT=abc"))).text();
    expect(eventsOf(first).map(({ event }) => event)).toEqual(order.tool);
    expect(first).toContain("/tmp/x");
    expect(first).toContain("abc");
    const then = await post("tool", id, api, api.request("", api.afterTool("please FILE=/tmp/x")));
    expect(eventsOf(await then.text()).map(({ event }) => event)).toEqual(order.text);
    const resumed = await post("tool", id, api, api.request("", api.afterTool("FILE=/tmp/x", "and FILE=/tmp/y")));
    const asked = await resumed.text();
    expect(asked).toContain("/tmp/y");
    expect(asked).not.toContain("/tmp/x");
    const without = await post("tool", id, api, api.request("please FILE=/tmp/x", { tools: [] }));
    expect(eventsOf(await without.text()).map(({ event }) => event)).toEqual(order.text);
  });

  test("a loop ends by itself", async () => {
    const id = fresh();
    let last = "";
    for (let n = 0; n <= LOOP_CALLS; n++) last = await (await post("loop", id, api, api.request("go on"))).text();
    expect(eventsOf(last).map(({ event }) => event)).toEqual(order.text);
    expect(server.requests(id)).toHaveLength(LOOP_CALLS + 1);
  });

  test.each([
    ["429", 429, "2"],
    ["429long", 429, "3600"],
  ])("%s says when to come again", async (scenario, status, after) => {
    for (const stream of [true, false]) {
      const answer = await post(scenario, fresh(), api, api.request("hello", { stream }));
      expect(answer.status).toBe(status);
      expect(answer.headers.get("retry-after")).toBe(after);
    }
  });

  test.each(["401", "403", "404", "500"])("%s is that status", async (scenario) => {
    expect((await post(scenario, fresh(), api, api.request("hello"))).status).toBe(Number(scenario));
  });

  test("a usage limit holds until its instant, and says it", async () => {
    const id = fresh();
    const resetAt = Math.floor(Date.now() / 1000) + 1000;
    const refused = await post(`quota~${resetAt}`, id, api, api.request("hello"));
    expect(refused.status).toBe(429);
    expect(JSON.stringify([...refused.headers, await refused.json()])).toContain(String(resetAt));
    const over = await post(`quota~${Math.floor(Date.now() / 1000) - 1}`, id, api, api.request("hello"));
    expect(over.status).toBe(200);
  });

  test.each(["flaky~2", "flaky429~2"])("%s fails twice", async (scenario) => {
    const id = fresh();
    const statuses: number[] = [];
    for (let n = 0; n < 3; n++) statuses.push((await post(scenario, id, api, api.request("hello"))).status);
    expect(statuses.map((status) => status === 200)).toEqual([false, false, true]);
  });

  test("a stream breaks after its first text, and so does an answer that does not stream", async () => {
    const id = fresh();
    const answer = await post("droponce", id, api, api.request("hello"));
    await expect(answer.text()).rejects.toThrow();
    expect(await server.requests(id)[0]?.answered).toBe(false);
    expect((await post("droponce", id, api, api.request("hello"))).status).toBe(200);
    await expect(post("drop", fresh(), api, api.request("hello", { stream: false }))).rejects.toThrow();
  });

  test("an error comes in the middle of a stream", async () => {
    const events = eventsOf(await (await post("errevent", fresh(), api, api.request("hello"))).text());
    expect(events.at(-1)?.event).toBe(api.name === "Messages" ? "error" : "response.failed");
  });

  test.each(["hang", "hangstart"])("%s stays silent until the agent goes away", async (scenario) => {
    const id = fresh();
    const away = new AbortController();
    const answer = post(scenario, id, api, api.request("hello"), away.signal)
      .then((got) => got.text())
      .catch(() => "gone");
    const request = await server.received(id, 1);
    away.abort();
    expect(await answer).toBe("gone");
    expect(await request.answered).toBe(false);
  });

  test("a request is awaited before it comes, and tells what it brought", async () => {
    const id = fresh();
    const second = server.received(id, 2);
    for (let n = 0; n < 2; n++) await (await post("ok", id, api, api.request(`prompt ${n}`))).text();
    const got = await second;
    expect(got).toMatchObject({ number: 2, method: "POST", path: api.path.split("?")[0] });
    expect(got.talk?.userTexts).toEqual(["prompt 1"]);
    expect(await got.answered).toBe(true);
  });

  test("a test's scenario can change under its agents", async () => {
    const id = fresh();
    expect((await post("401", id, api, api.request("hello"))).status).toBe(401);
    server.become(id, "ok");
    expect((await post("401", id, api, api.request("hello"))).status).toBe(200);
  });

  test("a scenario that does not exist is the test's fault, not a failure of the model", async () => {
    expect((await post("nonsense", fresh(), api, api.request("hello"))).status).toBe(418);
  });
});

test("what asks no model is answered and kept apart", async () => {
  const id = fresh();
  expect((await fetch(`${server.base("ok", id)}/`, { method: "HEAD" })).status).toBe(200);
  expect((await fetch(`${server.base("ok", id)}/api/hello`)).status).toBe(404);
  expect(server.asides(id).map(({ method, path }) => `${method} ${path}`)).toEqual(["HEAD /", "GET /api/hello"]);
  expect(server.requests(id)).toEqual([]);
});
