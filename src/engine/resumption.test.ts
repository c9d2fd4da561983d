import { describe, expect, test } from "vitest";
import type { FailureClass } from "../core/run.ts";
import { failureClasses } from "../core/run.ts";
import { inputOf, resumption } from "./resumption.ts";

const after = (was: FailureClass | null, sessionId: string | null = "S", message: string | null = "what was said") =>
  resumption({ sessionId, class: was, message }, true);

const GOES_ON: ReadonlySet<FailureClass> = new Set<FailureClass>([
  "rate_limited",
  "quota",
  "overloaded",
  "auth",
  "network",
  "lost",
  "timeout",
  "idle_timeout",
  "signal",
  "turn_limit",
  "check_failed",
  "cancelled",
  "spawn",
  "storage",
]);

describe("what an attempt goes on with", () => {
  test("the first one begins with the task and nothing else", () => {
    for (const before of [null, undefined]) expect(resumption(before, true)).toEqual({ sessionId: null, note: null });
  });

  test.each(failureClasses)("after %s", (was) => {
    const next = after(was);
    expect(next.sessionId).toBe(GOES_ON.has(was) ? "S" : null);
    expect(next.note).toMatch(
      GOES_ON.has(was) ? /^Your work was interrupted/ : new RegExp(`ended with ${was} \\(what was said\\)`),
    );
  });

  test.each(failureClasses)("after %s without a session it begins afresh", (was) => {
    const next = after(was, null);
    expect(next.sessionId).toBeNull();
    if (was === "spawn" || was === "storage") expect(next.note).toBeNull();
    else expect(next.note).toContain(was);
  });

  test("a command line that cannot go on begins afresh", () => {
    expect(resumption({ sessionId: "S", class: "timeout", message: null }, false).sessionId).toBeNull();
  });

  test("of a failed check it is told which, and not for pages", () => {
    expect(after("check_failed", "S", "file expected, but a.txt does not exist").note).toContain(
      "the task is not done: file expected, but a.txt does not exist.",
    );
    expect(after("check_failed", "S", "x".repeat(100_000)).note?.length).toBeLessThan(2_500);
  });
});

describe("what an agent reads", () => {
  const prompt = new Uint8Array([0xff, 0xfe, 0x2d, 0x0a]);
  const text = (bytes: Uint8Array) => new TextDecoder("latin1").decode(bytes);

  test("the first time the prompt, byte for byte", () => {
    expect(inputOf({ sessionId: null, note: null }, prompt)).toEqual(prompt);
  });
  test("afresh the note, a blank line and the prompt, byte for byte", () => {
    expect(text(inputOf({ sessionId: null, note: "Note." }, prompt))).toBe(`Note.\n\n${text(prompt)}`);
  });
  test("going on the note alone: the session has the task", () => {
    expect(text(inputOf({ sessionId: "S", note: "Note." }, prompt))).toBe("Note.\n");
  });
});
