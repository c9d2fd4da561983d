import { describe, expect, test } from "vitest";
import type { SessionUse } from "../core/agent.ts";
import type { FailureClass } from "../core/run.ts";
import { failureClasses } from "../core/run.ts";
import { inputOf, refusalOf, resumption } from "./resumption.ts";

const able = { resume: true, fork: true };
const after = (was: FailureClass | null, sessionId: string | null = "S", message: string | null = "what was said") =>
  resumption({ sessionId, class: was, message, folder: "att_1.1" }, able);
const begins = { how: "begin", sessionId: null, note: null, tellsTask: true };

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
  "oom",
  "turn_limit",
  "check_failed",
  "cancelled",
  "spawn",
  "storage",
]);

describe("what an attempt goes on with", () => {
  test("the first one begins with the task and nothing else", () => {
    for (const before of [null, undefined]) expect(resumption(before, able)).toEqual(begins);
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

  test("where no attempt got as far as a folder nothing began, and nothing is told of one", () => {
    const before = {
      sessionId: null,
      class: "lost",
      message: "the daemon was restarted before it was started",
    } as const;
    for (const folder of [null, undefined])
      expect(resumption(folder === undefined ? before : { ...before, folder }, able)).toEqual(begins);
  });

  test("a command line that cannot go on begins afresh", () => {
    const unable = { resume: false, fork: false };
    expect(resumption({ sessionId: "S", class: "timeout", message: null }, unable)).toMatchObject({
      how: "begin",
      sessionId: null,
      tellsTask: true,
    });
  });

  test("of a failed check it is told which, and not for pages", () => {
    expect(after("check_failed", "S", "file expected, but a.txt does not exist").note).toContain(
      "the task is not done: file expected, but a.txt does not exist.",
    );
    expect(after("check_failed", "S", "x".repeat(100_000)).note?.length).toBeLessThan(2_500);
  });
});

describe("B-116 after a session that was refused", () => {
  const next = (sessionRefused: SessionUse, sessionId: string | null, can = able) => {
    const { how, tellsTask } = resumption({ sessionId, class: "protocol", message: "in use", sessionRefused }, can);
    expect(tellsTask).toBe(true);
    return how;
  };
  test("what is there, then a copy, then a new one, and that is the end of it", () => {
    expect(next("begin", "S")).toBe("resume");
    expect(next("resume", "S")).toBe("fork");
    expect(next("fork", null)).toBe("afresh");
    expect(next("afresh", null)).toBe("afresh");
    expect(next("afresh", "S")).toBe("afresh");
  });
  test("what is gone, or what the command line cannot do, is left out", () => {
    expect(next("resume", null)).toBe("afresh");
    expect(next("begin", null)).toBe("afresh");
    expect(next("resume", "S", { resume: true, fork: false })).toBe("afresh");
    expect(next("begin", "S", { resume: false, fork: true })).toBe("fork");
    expect(next("begin", "S", { resume: false, fork: false })).toBe("afresh");
  });
  test("a new one is told that there was something before", () => {
    const { note } = resumption(
      { sessionId: null, class: "protocol", message: "in use", sessionRefused: "fork" },
      able,
    );
    expect(note).toMatch(/^An earlier attempt .* protocol \(in use\)/);
  });
  test("nothing goes on with what is gone, nor with what could not even be copied", () => {
    expect(refusalOf("resume", {})).toEqual({});
    expect(refusalOf("begin", { sessionUsed: true })).toEqual({ sessionRefused: "begin" });
    expect(refusalOf("resume", { sessionUsed: true })).toEqual({ sessionRefused: "resume" });
    expect(refusalOf("resume", { sessionGone: true })).toEqual({ sessionRefused: "resume", sessionGone: true });
    expect(refusalOf("fork", { sessionUsed: true })).toEqual({ sessionRefused: "fork", sessionGone: true });
    expect(refusalOf("afresh", { sessionUsed: true })).toEqual({ sessionRefused: "afresh", sessionGone: true });
  });
});

describe("what an agent reads", () => {
  const prompt = new Uint8Array([0xff, 0xfe, 0x2d, 0x0a]);
  const text = (bytes: Uint8Array) => new TextDecoder("latin1").decode(bytes);

  test("the first time the prompt, byte for byte", () => {
    expect(inputOf({ note: null, tellsTask: true }, prompt)).toEqual(prompt);
  });
  test("afresh the note, a blank line and the prompt, byte for byte", () => {
    expect(text(inputOf({ note: "Note.", tellsTask: true }, prompt))).toBe(`Note.\n\n${text(prompt)}`);
  });
  test("going on the note alone: the session has the task", () => {
    expect(text(inputOf({ note: "Note.", tellsTask: false }, prompt))).toBe("Note.\n");
  });
});
