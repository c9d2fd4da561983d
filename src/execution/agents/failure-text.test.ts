import { expect, test } from "vitest";
import { classifyStatus, classifyText, statusIn } from "./failure-text.ts";

/** Texts and words of events that providers write, most of them seen; the last column is the class. */
const TEXTS = [
  ["API Error: Request rejected (429) · slow down", "rate_limited"],
  [
    "API Error: Server is temporarily limiting requests (not your usage limit) · This request would exceed your account's rate limit.",
    "rate_limited",
  ],
  ["exceeded retry limit, last status: 429 Too Many Requests, request id: req_1", "rate_limited"],
  ["Connection error: 429 Too Many Requests", "rate_limited"],
  ["Rate limit reached for gpt-5 in organization org-1. Please try again in 2s.", "rate_limited"],
  ["ThrottlingException: request was throttled", "rate_limited"],
  ["RESOURCE_EXHAUSTED", "rate_limited"],
  ["You've hit your 5-hour limit · resets 12:57am (UTC)", "quota"],
  ["You’ve hit your usage limit. Upgrade to Pro or try again at 8:18 AM.", "quota"],
  ["Claude AI usage limit reached|1755806400", "quota"],
  ["You've hit your weekly limit · resets Dec 3 at 8am", "quota"],
  ["Quota exceeded. Check your plan and billing details.", "quota"],
  ["429 You exceeded your current quota, please check your plan and billing details. insufficient_quota", "quota"],
  ["Credit balance is too low", "quota"],
  ["You have exhausted your daily quota on this model.", "quota"],
  ["402 Payment Required", "quota"],
  [
    "unexpected status 401 Unauthorized: Incorrect API key provided., url: http://127.0.0.1:8080/s/429/x/v1/responses",
    "auth",
  ],
  ["unexpected status 403 Forbidden: Your project may not use this.", "auth"],
  ["Invalid API key · Fix external API key", "auth"],
  ["Not logged in · Please run /login", "auth"],
  ["Failed to authenticate. API Error: 403 forbidden", "auth"],
  ["Missing environment variable: `FAKE_KEY`.", "auth"],
  ["OAuth token has expired. Please log in again.", "auth"],
  ["API key not valid. Please pass a valid API key.", "auth"],
  ["The model `gpt-fake` does not exist or you do not have access to it.", "env_invalid"],
  ["There's an issue with the selected model (x). It may not exist or you may not have access to it.", "env_invalid"],
  [
    "API Error: 500 Internal server error. This is a server-side issue, usually temporary — try again in a moment.",
    "overloaded",
  ],
  ["API Error: 529 Overloaded. This is a server-side issue", "overloaded"],
  ["We’re currently experiencing high demand, which may cause temporary errors.", "overloaded"],
  ["Selected model is at capacity. Please try a different model.", "overloaded"],
  ["503 Service Unavailable", "overloaded"],
  ["502 Bad Gateway", "overloaded"],
  ["API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again.", "network"],
  ["API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)", "network"],
  ["Request timed out. If the API is slow to answer, set API_TIMEOUT_MS above 3000.", "network"],
  ["stream disconnected before completion: Transport error: network error: error decoding response body", "network"],
  ["stream disconnected before completion: idle timeout waiting for SSE", "network"],
  ["Connection failed: error sending request", "network"],
  ["Reconnecting... waiting for network (Connection failed)", "network"],
  ["getaddrinfo ENOTFOUND api.example.com", "network"],
  ["Prompt is too long · the request is ~210000 tokens (limit 200000)", "context"],
  ["Codex ran out of room in the model's context window. Start a new thread.", "context"],
  ["This model's maximum context length is 200000 tokens", "context"],
  ["Reached maximum number of turns (2)", "turn_limit"],
  ["Reached maximum budget ($0.01)", "budget"],
  ["something that nobody has seen before", null],
  ["test 429/430 failed in file.ts:401", null],
  ["version 5.0.3 is out", null],
  ["", null],
] as const;

test.each(TEXTS)("B-093 %s", (text, expected) => {
  expect(classifyText(text)).toBe(expected);
});

test("B-093 the table has at least forty texts", () => expect(TEXTS.length).toBeGreaterThanOrEqual(40));

test("a status alone says what it can", () => {
  expect([429, 401, 403, 402, 500, 529, 400, 404, null].map(classifyStatus)).toEqual([
    "rate_limited",
    "auth",
    "auth",
    "quota",
    "overloaded",
    "overloaded",
    null,
    null,
    null,
  ]);
});

test("the status in a message is found where it is one", () => {
  expect(statusIn("unexpected status 401 Unauthorized, url: http://h:8080/s/500/v1")).toBe(401);
  expect(statusIn("exceeded retry limit, last status: 429 Too Many Requests")).toBe(429);
  expect(statusIn("API Error: Request rejected (429)")).toBe(429);
  expect(statusIn("something else")).toBeNull();
});
