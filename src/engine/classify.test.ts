import { describe, expect, test } from "vitest";
import type { AgentVerdict } from "../core/agent.ts";
import { classify, classifyAgent, classOfPreparation, type Ending, type EndWish, type Evidence } from "./classify.ts";

const AT = 1_000_000;
const ended = (exit: number, endedAt = AT): Evidence["judgement"] => ({
  kind: "ended",
  exit,
  startedAt: AT - 10_000,
  endedAt,
  durationMs: 10_000,
});
const wish = (by: EndWish["by"], inherited = false): EndWish => ({ by, message: `because of ${by}`, inherited });
const ending = (by: EndWish["by"], killed = 1, inherited = false): Ending => ({
  wish: wish(by, inherited),
  signalledAt: AT - 5,
  killed,
});
const what = { program: "pyton", cwd: "/work" };
const judge = (evidence: Partial<Evidence> & Pick<Evidence, "judgement">) =>
  classify({ ending: null, left: 0, outputFault: null, unmet: null, ...what, ...evidence });

describe("what ended by itself", () => {
  test.each([
    [0, { kind: "succeeded", class: null, exitStatus: 0, signal: null }],
    [1, { kind: "failed", class: "exit", exitStatus: 1, signal: null }],
    [127, { kind: "failed", class: "exit", exitStatus: 127, signal: null }],
    [128, { kind: "failed", class: "exit", exitStatus: 128, signal: null }],
    [137, { kind: "failed", class: "signal", exitStatus: 137, signal: 9 }],
    [143, { kind: "failed", class: "signal", exitStatus: 143, signal: 15 }],
    [255, { kind: "failed", class: "exit", exitStatus: 255, signal: null }],
  ] as const)("status %i", (exit, outcome) => {
    expect(judge({ judgement: ended(exit) })).toMatchObject({ ...outcome, endedBy: "self" });
  });

  test.each([
    ["nocwd", what, "the working directory does not exist or cannot be entered: /work"],
    ["nocmd", what, "the command was not found: pyton is not on the PATH of the daemon"],
    ["nocmd", { program: "/opt/x" }, "the command was not found: there is no /opt/x"],
    ["noexec", what, "the command cannot be executed: pyton"],
  ] as const)("%s of %o is not found, counted, and says what was looked for", (fault, given, message) => {
    const judgement = { ...ended(127), fault } as Evidence["judgement"];
    expect(judge({ judgement, ...given })).toMatchObject({ kind: "failed", class: "not_found", message });
  });

  test("B-021 what the kernel ended for want of memory is told apart from other kills, unless we killed it", () => {
    const judgement = { ...ended(137), outOfMemory: true } as Evidence["judgement"];
    expect(judge({ judgement })).toMatchObject({ kind: "failed", class: "oom", exitStatus: 137, signal: 9 });
    expect(judge({ judgement, ending: ending("timeout") })).toMatchObject({ kind: "timed_out", class: "timeout" });
  });

  test("success needs evidence: an output that is none and an expectation that does not hold fail it", () => {
    expect(judge({ judgement: ended(0), outputFault: "not JSON" })).toMatchObject({
      kind: "failed",
      class: "output_invalid",
      message: "not JSON",
    });
    expect(judge({ judgement: ended(0), unmet: "no commit" })).toMatchObject({
      kind: "failed",
      class: "check_failed",
      message: "no commit",
    });
    expect(judge({ judgement: ended(3), unmet: "no commit" })).toMatchObject({ class: "exit" });
  });
});

describe("what we ended", () => {
  test.each([
    ["timeout", "timed_out", "timeout"],
    ["idle", "timed_out", "idle_timeout"],
    ["cancel", "cancelled", "cancelled"],
    ["exit_timer", "stopped", "cancelled"],
    ["stop", "stopped", "cancelled"],
  ] as const)("%s", (by, kind, reason) => {
    for (const exit of [143, 137])
      expect(judge({ judgement: ended(exit), ending: ending(by) })).toMatchObject({
        kind,
        class: reason,
        endedBy: by,
        exitStatus: exit,
      });
    // It heard TERM and left in its own way.
    expect(judge({ judgement: ended(0), ending: ending(by) })).toMatchObject({ kind, endedBy: by });
    // Its shim died with it: why it is over is known all the same.
    expect(judge({ judgement: { kind: "lost", why: "exit_unknown" }, ending: ending(by) })).toMatchObject({
      kind,
      exitStatus: null,
    });
  });

  test("B-101 a signal that was sent after it had ended does not change how it ended", () => {
    // Nothing of it was there any more.
    expect(judge({ judgement: ended(0), ending: ending("timeout", 0) })).toMatchObject({
      kind: "succeeded",
      endedBy: "self",
    });
    expect(judge({ judgement: ended(3), ending: ending("cancel", 0) })).toMatchObject({
      kind: "failed",
      class: "exit",
      endedBy: "self",
    });
    // Only what it had left behind was there.
    expect(judge({ judgement: ended(0, AT - 1_000), ending: ending("cancel", 2) })).toMatchObject({
      kind: "succeeded",
    });
  });

  test("a status that only a signal leaves is ours although the files' clock lags behind", () => {
    expect(judge({ judgement: ended(143, AT - 9), ending: ending("timeout") })).toMatchObject({ kind: "timed_out" });
  });

  test("what an earlier daemon had begun to end counts as ended by it only where a signal shows", () => {
    expect(judge({ judgement: ended(143), ending: ending("timeout", 0, true) })).toMatchObject({ kind: "timed_out" });
    expect(judge({ judgement: ended(0), ending: ending("timeout", 0, true) })).toMatchObject({ kind: "succeeded" });
  });
});

describe("what is not known", () => {
  test("lost, with what is known", () => {
    for (const why of ["host_restarted", "folder_vanished", "exit_unknown"] as const)
      expect(judge({ judgement: { kind: "lost", why } })).toMatchObject({ kind: "lost", class: "lost" });
    expect(judge({ judgement: { kind: "lost", why: "host_restarted" }, ending: ending("timeout") })).toMatchObject({
      kind: "lost",
    });
  });
  test("it never started; a full disk is the weather's", () => {
    expect(judge({ judgement: { kind: "never_started", why: "no ticket was taken" } })).toMatchObject({
      kind: "never_started",
      class: "lost",
    });
    expect(judge({ judgement: { kind: "never_started", why: "no space" } })).toMatchObject({
      kind: "never_started",
      class: "storage",
    });
  });
  test("processes that could not be ended are said", () => {
    expect(judge({ judgement: ended(143), ending: ending("cancel"), left: 2 }).message).toBe(
      "because of cancel; 2 of its processes could not be ended",
    );
    expect(judge({ judgement: ended(0), left: 1 })).toMatchObject({
      kind: "succeeded",
      message: "1 of its processes could not be ended",
    });
  });
});

test("what keeps an attempt from being prepared", () => {
  expect(["env_invalid", "secret_unresolved", "no_space", "disk_full", "anything"].map(classOfPreparation)).toEqual([
    "env_invalid",
    "env_invalid",
    "storage",
    "storage",
    "spawn",
  ]);
});

describe("the end of an agent", () => {
  const ok: AgentVerdict = {
    ok: true,
    class: null,
    message: null,
    text: "done",
    sessionId: "S",
    usage: null,
    resetAt: null,
    resetSource: null,
    httpStatus: null,
    refusedTools: [],
  };
  const limited: AgentVerdict = { ...ok, ok: false, class: "rate_limited", message: "429" };
  const silent: AgentVerdict = { ...ok, ok: false, class: "no_result", message: "ended without a result" };
  const orphan: Evidence["judgement"] = { kind: "orphan", pid: 9, pidStarted: "1" };
  const lost = (why: "exit_unknown" | "host_restarted" | "folder_vanished"): Evidence["judgement"] => ({
    kind: "lost",
    why,
  });
  const by = (wish: Partial<EndWish>): Ending => ({
    wish: { by: "timeout", message: "too long", inherited: false, ...wish },
    signalledAt: AT - 5,
    killed: 1,
  });

  test.each<[string, Evidence["judgement"], Ending | null, AgentVerdict, boolean, string, string | null]>([
    ["says that it is done", ended(0), null, ok, true, "succeeded", null],
    ["says nothing and exits with 0", ended(0), null, silent, false, "failed", "no_result"],
    [
      "is ended for want of memory",
      { ...ended(137), outOfMemory: true } as never,
      null,
      silent,
      false,
      "failed",
      "oom",
    ],
    ["was done before that", { ...ended(137), outOfMemory: true } as never, null, ok, true, "succeeded", null],
    ["says what went wrong and exits with 0", ended(0), null, limited, true, "failed", "rate_limited"],
    ["says what went wrong and exits with 1", ended(1), null, limited, true, "failed", "rate_limited"],
    ["is done before our TERM", ended(143), by({}), ok, true, "succeeded", null],
    ["is done before the cancel", ended(143), by({ by: "cancel" }), ok, true, "succeeded", null],
    ["had failed before our TERM", ended(143), by({}), limited, true, "failed", "rate_limited"],
    ["says after our TERM that it is done", ended(0), by({}), ok, false, "timed_out", "timeout"],
    ["is silent until we end it", ended(143), by({ by: "idle" }), silent, false, "timed_out", "idle_timeout"],
    [
      "is in trouble until we end it",
      ended(143),
      by({ by: "idle", class: "network" }),
      silent,
      false,
      "failed",
      "network",
    ],
    ["is cancelled", ended(143), by({ by: "cancel" }), silent, false, "cancelled", "cancelled"],
    ["is stopped with us", ended(143), by({ by: "stop" }), silent, false, "stopped", "cancelled"],
    ["was done, and its shim died", orphan, null, ok, true, "succeeded", null],
    ["was at work, and its shim died", orphan, null, silent, false, "lost", "lost"],
    ["was done when the host went", lost("host_restarted"), null, ok, true, "succeeded", null],
    ["was at work when the host went", lost("host_restarted"), null, silent, false, "lost", "lost"],
    ["has no folder any more", lost("folder_vanished"), null, silent, false, "lost", "lost"],
    ["program vanished", { ...ended(127), fault: "nocmd" } as never, null, silent, false, "failed", "spawn"],
    ["folder vanished", { ...ended(125), fault: "nocwd" } as never, null, silent, false, "failed", "not_found"],
    ["never started", { kind: "never_started", why: "no ticket" }, null, silent, false, "never_started", "lost"],
  ])("one that %s", (_, judgement, ending, said, closed, kind, of) => {
    const verdict = classifyAgent(
      { judgement, ending, left: 0, outputFault: null, unmet: null, ...what },
      said,
      closed,
    );
    expect([verdict.kind, verdict.class]).toEqual([kind, of]);
  });

  test("its output and what was expected are looked at only where it is done", () => {
    const seen = {
      judgement: ended(0),
      ending: null,
      left: 0,
      outputFault: "it is no JSON",
      unmet: "no commit",
      ...what,
    };
    expect(classifyAgent(seen, ok, true)).toMatchObject({ class: "output_invalid" });
    expect(classifyAgent({ ...seen, outputFault: null }, ok, true)).toMatchObject({ class: "check_failed" });
    expect(classifyAgent(seen, limited, true)).toMatchObject({ class: "rate_limited" });
  });

  test("B-120 a provider's program that vanished is away, one of the work's own is not found", () => {
    const judgement = { ...ended(127), fault: "nocmd" } as never;
    const of = (isOwnProgram: boolean) =>
      classifyAgent(
        { judgement, ending: null, left: 0, outputFault: null, unmet: null, ...what, isOwnProgram },
        silent,
        false,
      );
    expect(of(false)).toMatchObject({ kind: "failed", class: "spawn", programAway: true });
    expect(of(true)).toMatchObject({ kind: "failed", class: "not_found" });
    expect(of(true)).not.toHaveProperty("programAway");
  });

  test("what could not be ended is said with either end", () => {
    const seen = {
      judgement: ended(143),
      ending: by({ by: "stop" }),
      left: 2,
      outputFault: null,
      unmet: null,
      ...what,
    };
    expect(classifyAgent(seen, ok, true).message).toBe("forced exit: too long; 2 of its processes could not be ended");
    expect(classifyAgent(seen, silent, false).message).toContain("2 of its processes could not be ended");
  });
});
