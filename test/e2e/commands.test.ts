/** For every command through the real binary: one success, one bad input, one thing that is not there. */
import { execFileSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { operations } from "../../src/ops/index.ts";
import { differenceFrom } from "../../src/ops/shape.ts";
import { type Home, openHome, until } from "./drover.ts";

let home: Home;
/** Runs that the tests look at. */
let good = "";
let bad = "";

const shapes = new Map<string, (answer: unknown) => string | null>();

beforeAll(async () => {
  for (const entry of operations) {
    const { operation } = await entry.load();
    shapes.set(entry.name, (answer) => differenceFrom(operation.output, answer));
  }
  home = openHome();
  await home.json(["up"]);
  good = (
    await home.json<{ id: string }>(["run", "--label", "nice", "--", "sh", "-c", "echo one; echo two; echo err >&2"])
  ).id;
  bad = (
    JSON.parse((await home.run(["run", "--json", "--", "sh", "-c", "echo last words; exit 3"])).out) as { id: string }
  ).id;
});
afterAll(() => home.close());

/** Runs it with `--json`, and holds the answer against what the operation says it answers. */
async function answer<T = Record<string, unknown>>(name: string, args: readonly string[]): Promise<T> {
  const given = await home.json<T>(args);
  expect(shapes.get(name)?.(given)).toBeNull();
  return given;
}

interface Case {
  /** Words of the command; `name` is the operation's. */
  readonly name: string;
  readonly success: () => Promise<unknown>;
  /** A bad input and its code. */
  readonly bad: readonly [args: readonly string[], code: string];
  /** What is not there and its code; null for a command that names nothing. */
  readonly missing: readonly [args: readonly string[], code: string] | null;
}

const loop = (name: string): Promise<unknown> => home.json(["loop", "add", name, "--every", "1h", "--", "true"]);

const cases: readonly Case[] = [
  {
    name: "up",
    success: async () => expect(await answer("up", ["up"])).toMatchObject({ state: "up", started: false }),
    bad: [["up", "--sideways"], "unknown_flag"],
    missing: null,
  },
  {
    name: "status",
    success: async () =>
      expect(await answer("status", ["status"])).toMatchObject({
        daemon: { state: "up", mode: "full" },
        store: { kind: "sqlite" },
      }),
    bad: [["status", "now"], "too_many_words"],
    missing: null,
  },
  {
    name: "doctor",
    success: async () => {
      const ended = await home.run(["doctor", "--json"]);
      const given = JSON.parse(ended.out) as { ok: boolean; findings: { check: string }[] };
      expect(shapes.get("doctor")?.(given)).toBeNull();
      expect(given.findings.map((one) => one.check)).toEqual(
        expect.arrayContaining(["config", "store", "daemon", "clock", "disk", "path", "processes"]),
      );
      expect(ended.status).toBe(given.ok ? 0 : 1);
    },
    bad: [["doctor", "--fix=all"], "bad_input"],
    missing: null,
  },
  {
    name: "loop.add",
    success: async () => {
      const given = await answer<{ upcoming: unknown[]; warnings: unknown[] }>("loop.add", [
        "loop",
        "add",
        "added",
        "--cron",
        "30 2 * * *",
        "--tz",
        "Europe/Rome",
        "--",
        "true",
      ]);
      expect(given).toMatchObject({ name: "added", status: "active", schedule: { kind: "cron", zone: "Europe/Rome" } });
      expect(given.upcoming).toHaveLength(5);
      expect(given.warnings).toEqual([]);
    },
    bad: [["loop", "add", "x", "--every", "soon", "--", "true"], "bad_duration"],
    missing: [["loop", "add", "x", "--every", "1h", "--", "no-such-command-anywhere"], "command_not_found"],
  },
  {
    name: "loop.ls",
    success: async () => {
      await loop("listed");
      expect(
        (await answer<{ items: { name: string }[] }>("loop.ls", ["loop", "ls"])).items.map((one) => one.name),
      ).toContain("listed");
    },
    bad: [["loop", "ls", "--limit", "0"], "out_of_range"],
    missing: null,
  },
  {
    name: "loop.show",
    success: async () => {
      await loop("shown");
      expect(await answer("loop.show", ["loop", "show", "shown"])).toMatchObject({ name: "shown", recentSlots: [] });
    },
    bad: [["loop", "show"], "missing_value"],
    missing: [["loop", "show", "nobody"], "loop_not_found"],
  },
  {
    name: "loop.slots",
    success: async () => {
      await home.json(["loop", "add", "quick", "--every", "1s", "--", "true"]);
      const slots = await until(async () => {
        const { items } = await home.json<{ items: { outcome: string | null }[] }>(["loop", "slots", "quick"]);
        return items.some((one) => one.outcome === "succeeded") ? items : null;
      }, "a slot has succeeded");
      expect(slots).not.toBeNull();
      await home.json(["loop", "pause", "quick"]);
      const each = await answer<{ items: { at: string; count: number }[]; next: string | null }>("loop.slots", [
        "loop",
        "slots",
        "quick",
        "--each",
        "--limit",
        "1",
      ]);
      expect(each.items).toHaveLength(1);
    },
    bad: [["loop", "slots", "quick", "--cursor", "%%%"], "bad_cursor"],
    missing: [["loop", "slots", "nobody"], "loop_not_found"],
  },
  {
    name: "loop.run",
    success: async () => {
      await loop("pushed");
      const given = await answer<{ source: string; runId: string }>("loop.run", ["loop", "run", "pushed", "--wait"]);
      expect(given).toMatchObject({ loop: "pushed", source: "ad_hoc", run: { status: "succeeded", loop: "pushed" } });
    },
    bad: [["loop", "run", "pushed", "--wait", "--detach"], "contradiction"],
    missing: [["loop", "run", "nobody"], "loop_not_found"],
  },
  {
    name: "loop.edit",
    success: async () => {
      await loop("edited");
      const given = await answer<Record<string, unknown>>("loop.edit", [
        "loop",
        "edit",
        "edited",
        "--every",
        "2h",
        "--timeout",
        "5m",
      ]);
      expect(given).toMatchObject({ schedule: { everyMs: 7_200_000 }, policy: { timeoutMs: 300_000 }, revision: 2 });
      expect(await home.json(["loop", "edit", "edited", "--timeout", "0s"])).toMatchObject({
        policy: { timeoutMs: null },
      });
    },
    bad: [["loop", "edit", "edited"], "nothing_to_do"],
    missing: [["loop", "edit", "nobody", "--every", "1h"], "loop_not_found"],
  },
  ...(["pause", "resume", "archive", "unarchive"] as const).map(
    (verb): Case => ({
      name: `loop.${verb}`,
      success: async () => {
        const name = `for-${verb}`;
        const { id } = (await loop(name)) as { id: string };
        if (verb === "resume") await home.json(["loop", "pause", name]);
        if (verb === "unarchive") await home.json(["loop", "archive", name]);
        const after = {
          pause: { status: "paused" },
          resume: { status: "active" },
          archive: { archived: true },
          unarchive: { archived: false },
        };
        expect(await answer(`loop.${verb}`, ["loop", verb, id])).toMatchObject({ id, ...after[verb] });
      },
      bad: [["loop", verb], "missing_value"],
      missing: [["loop", verb, "nobody"], "loop_not_found"],
    }),
  ),
  {
    name: "loop.rename",
    success: async () => {
      await loop("before");
      expect(await answer("loop.rename", ["loop", "rename", "before", "after"])).toMatchObject({ name: "after" });
    },
    bad: [["loop", "rename", "after", "new\nline"], "bad_name"],
    missing: [["loop", "rename", "nobody", "else"], "loop_not_found"],
  },
  {
    name: "loop.rm",
    success: async () => {
      await loop("gone");
      expect(await answer("loop.rm", ["loop", "rm", "gone", "--dry-run"])).toMatchObject({ removed: false });
      expect(await answer("loop.rm", ["loop", "rm", "gone"])).toMatchObject({ removed: true });
      await home.refused(3, ["loop", "show", "gone"]);
    },
    bad: [["loop", "rm", "--all"], "unknown_flag"],
    missing: [["loop", "rm", "nobody"], "loop_not_found"],
  },
  {
    name: "schedule.next",
    success: async () => {
      const given = await answer<{ items: { local: string; clockChange: boolean }[] }>("schedule.next", [
        "schedule",
        "next",
        "30 2 * * *",
        "--tz",
        "Europe/Rome",
        "--from",
        "2026-10-24T12:00",
        "-n",
        "2",
      ]);
      expect(given.items.map((one) => one.local)).toEqual(["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]);
      expect(given.items[1]?.clockChange).toBe(true);
    },
    bad: [["schedule", "next", "99 * * * *"], "bad_cron"],
    missing: null,
  },
  {
    name: "schedule.explain",
    success: async () =>
      expect(await answer("schedule.explain", ["schedule", "explain", "@daily", "--tz", "Europe/Rome"])).toMatchObject({
        text: "cron @daily Europe/Rome",
      }),
    bad: [["schedule", "explain", "* * * * *", "--tz", "Atlantis/Capital"], "unknown_zone"],
    missing: null,
  },
  {
    name: "run",
    success: async () => {
      const given = await answer("run", ["run", "--", "true"]);
      expect(given).toMatchObject({ kind: "command", status: "succeeded", exitCode: 0, error: null, origin: "person" });
    },
    bad: [["run", "--timeout", "-5", "--", "true"], "bad_duration"],
    missing: [["run", "--cwd", "/no/such/folder", "--", "true"], "cwd_not_found"],
  },
  {
    name: "runs",
    success: async () => {
      const failed = await answer<{ items: { id: string }[] }>("runs", ["runs", "--status", "failed"]);
      expect(failed.items.map((one) => one.id)).toContain(bad);
      const labelled = await answer<{ items: { id: string }[] }>("runs", ["runs", "--label", "nice", "--since", "1h"]);
      expect(labelled.items.map((one) => one.id)).toEqual([good]);
      const first = await answer<{ items: { id: string }[]; next: string }>("runs", ["runs", "--limit", "1"]);
      const second = await answer<{ items: { id: string }[] }>("runs", [
        "runs",
        "--limit",
        "1",
        "--cursor",
        first.next,
      ]);
      expect(second.items[0]?.id).not.toBe(first.items[0]?.id);
    },
    bad: [["runs", "--status", "excellent"], "bad_choice"],
    missing: [["runs", "--loop", "nobody"], "loop_not_found"],
  },
  {
    name: "show",
    success: async () => {
      expect(await answer("show", ["show", bad])).toMatchObject({
        status: "failed",
        exitCode: 3,
        error: { class: "exit" },
        steps: [{ key: "main", attempts: [{ number: 1, status: "failed", exitCode: 3, counted: true }] }],
      });
      // A prefix that nothing shares, and a suffix, name it too.
      expect(await answer("show", ["show", bad.slice(-10)])).toMatchObject({ id: bad });
    },
    bad: [["show"], "missing_value"],
    missing: [["show", "run_00000000000000000000000000"], "run_not_found"],
  },
  {
    name: "manifest",
    success: async () => {
      const given = await answer<{ result: { exitCode: number }; receipt: { summary: string } }>("manifest", [
        "manifest",
        bad,
      ]);
      expect(given).toMatchObject({ result: { exitCode: 3 }, receipt: { summary: "last words\n" } });
      // I13: whatever the run does with its secrets.
      const canary = "canary-of-the-manifest-5813";
      const told = `echo "$KEY"; echo "$KEY" >&2; printf '{"said":"%s"}' "$KEY" > "$DROVER_OUTPUT"; exit 3`;
      const secrets = [
        "--secret",
        `KEY=cmd:printf canary-of-; printf the-manifest-5813`,
        "--env",
        `API_TOKEN=${canary}`,
      ];
      const { id } = JSON.parse((await home.run(["run", "--json", ...secrets, "--shell", told])).out) as { id: string };
      const { out } = await home.run(["manifest", id]);
      expect(out).toContain("[secret]");
      expect(out).not.toContain(canary);
    },
    bad: [["manifest"], "missing_value"],
    missing: [["manifest", "run_nobody"], "run_not_found"],
  },
  {
    name: "logs",
    success: async () => {
      expect((await home.run(["logs", good])).out).toBe("one\ntwo\n");
      expect((await home.run(["logs", good, "--stderr"])).out).toBe("err\n");
      expect((await home.run(["logs", good, "--tail", "1"])).out).toBe("two\n");
      expect((await home.run(["logs", good, "-f"])).out).toBe("one\ntwo\n");
      expect(await answer("logs", ["logs", good])).toMatchObject({
        text: "one\ntwo\n",
        attempt: 1,
        stream: "stdout",
        truncated: false,
      });
      const lines = (await home.run(["logs", good, "-f", "--json"])).out.trim().split("\n");
      expect(lines.map((line) => (JSON.parse(line) as { text: string }).text).join("")).toBe("one\ntwo\n");
    },
    bad: [["logs", "x", "--tail", "some"], "bad_input"],
    missing: [["logs", "nobody"], "run_not_found"],
  },
  {
    name: "cancel",
    success: async () => {
      const { id } = await home.json<{ id: string }>(["run", "--detach", "--", "sleep", "60"]);
      const given = await answer("cancel", ["cancel", id, "--reason", "enough"]);
      expect(given).toMatchObject({ run: { id, status: "cancelled", cancel: { reason: "enough" } } });
      expect(await answer("cancel", ["cancel", id])).toMatchObject({ answer: "already_ended" });
    },
    bad: [["cancel", "x", "y"], "too_many_words"],
    missing: [["cancel", "nobody"], "run_not_found"],
  },
  {
    name: "retry",
    success: async () => {
      const given = JSON.parse((await home.run(["retry", bad, "--wait", "--json"])).out) as {
        retryOf: string;
        status: string;
      };
      expect(shapes.get("retry")?.(given)).toBeNull();
      expect(given).toMatchObject({ retryOf: bad, status: "failed" });
    },
    bad: [["retry", "x", "--wait", "--detach"], "contradiction"],
    missing: [["retry", "nobody"], "run_not_found"],
  },
  {
    name: "why",
    success: async () => {
      const given = await answer<{ sentence: string }>("why", ["why", bad]);
      expect(given.sentence).toContain("failed: exited with status 3 (exit, try 1 of 1)");
      await loop("asked");
      expect((await answer<{ sentence: string }>("why", ["why", "asked"])).sentence).toContain("fires next");
    },
    bad: [["why"], "missing_value"],
    missing: [["why", "nobody"], "thing_not_found"],
  },
  {
    name: "events",
    success: async () => {
      const { items } = await answer<{ items: { number: number; subject: { kind: string } }[] }>("events", [
        "events",
        "--run",
        good,
      ]);
      expect(items.length).toBeGreaterThan(2);
      const lines = (await home.run(["events", "-f", "--run", good, "--json"])).out.trim().split("\n");
      expect(lines.map((line) => JSON.parse(line) as unknown)).toEqual(items);
    },
    bad: [["events", "--limit", "100000"], "out_of_range"],
    missing: [["events", "--run", "nobody"], "run_not_found"],
  },
  {
    name: "limit.ls",
    success: async () => {
      const { items } = await answer<{ items: { resource: string; limit: number }[] }>("limit.ls", ["limit", "ls"]);
      expect(items.some((one) => one.limit === 256)).toBe(true);
    },
    bad: [["limit", "ls", "gpu"], "too_many_words"],
    missing: null,
  },
  {
    name: "limit.set",
    success: async () => {
      expect(await answer("limit.set", ["limit", "set", "folder:/srv/app", "2"])).toEqual({
        resource: "folder:/srv/app",
        limit: 2,
        warnings: [],
      });
      const { items } = await home.json<{ items: { resource: string; limit: number }[] }>(["limit", "ls"]);
      expect(items).toContainEqual(expect.objectContaining({ resource: "folder:/srv/app", limit: 2 }));
      expect((await home.refused(2, ["limit", "set", "host:x:agent", "2"])).hint).toContain("caps.agents");
    },
    bad: [["limit", "set", "gpu", "2"], "bad_input"],
    missing: [["limit", "set", "account:claude:nobody", "1"], "account_not_found"],
  },
  {
    name: "limit.rm",
    success: async () => {
      await home.json(["limit", "set", "provider:codex", "3"]);
      expect(await answer("limit.rm", ["limit", "rm", "provider:codex"])).toEqual({
        resource: "provider:codex",
        removed: true,
        warnings: [],
      });
      const { items } = await home.json<{ items: { resource: string }[] }>(["limit", "ls"]);
      expect(items.map((one) => one.resource)).not.toContain("provider:codex");
      expect((await home.refused(2, ["limit", "rm", "host:x:agent"])).hint).toContain("caps.agents");
    },
    bad: [["limit", "rm", "gpu"], "bad_input"],
    missing: [["limit", "rm", "provider:codex"], "limit_not_found"],
  },
  {
    name: "account.add",
    success: async () => {
      const made = await answer<{ home: string }>("account.add", ["account", "add", "claude", "added", "--cap", "2"]);
      expect(made).toMatchObject({ id: "claude:added", cap: 2, status: "unknown", holds: [] });
      expect(made.home).toBe(join(home.folder, "home/accounts/claude/added"));
      expect(statSync(made.home).mode & 0o777).toBe(0o700);
      const own = join(home.folder, "own");
      expect(await answer("account.add", ["account", "add", "codex", "added", "--home", "own"])).toMatchObject({
        home: own,
      });
      expect((await home.refused(4, ["account", "add", "codex", "added"])).code).toBe("name_taken");
      chmodSync(own, 0o755);
      const open = await home.refused(2, ["account", "add", "codex", "more", "--home", "own"]);
      expect([open.code, open.hint]).toEqual(["home_unusable", `chmod 700 ${own}`]);
    },
    bad: [["account", "add", "claude", "default"], "bad_name"],
    missing: null,
  },
  {
    name: "account.ls",
    success: async () => {
      await home.json(["account", "add", "claude", "listed"]);
      const { items } = await answer<{ items: { id: string }[] }>("account.ls", ["account", "ls"]);
      const ids = items.map((one) => one.id);
      expect(ids).toEqual(expect.arrayContaining(["claude:default", "claude:listed", "codex:default"]));
      const shown = await home.json<{ items: { provider: string }[] }>(["account", "ls", "--provider", "codex"]);
      expect(new Set(shown.items.map((one) => one.provider))).toEqual(new Set(["codex"]));
    },
    bad: [["account", "ls", "--provider", "acme"], "bad_choice"],
    missing: null,
  },
  {
    name: "account.show",
    success: async () => {
      await home.json([
        ...["account", "add", "codex", "shown", "--env", "A=1"],
        ...["--secret", "CODEX_API_KEY=env:NOBODY_HAS_THIS"],
      ]);
      expect(await answer("account.show", ["account", "show", "shown"])).toMatchObject({
        id: "codex:shown",
        env: { A: "1" },
        secrets: { CODEX_API_KEY: "env:NOBODY_HAS_THIS" },
      });
      expect(await answer("account.show", ["account", "show", "claude:default"])).toMatchObject({ home: null });
      expect((await home.refused(4, ["account", "show", "default"])).hint).toContain("claude:default, codex:default");
    },
    bad: [["account", "show"], "missing_value"],
    missing: [["account", "show", "claude:nobody"], "account_not_found"],
  },
  {
    name: "account.enable",
    success: async () => {
      await home.json(["account", "add", "claude", "back"]);
      await home.json(["account", "disable", "back"]);
      expect(await answer("account.enable", ["account", "enable", "back"])).toMatchObject({ enabled: true });
    },
    bad: [["account", "enable", "a", "b"], "too_many_words"],
    missing: [["account", "enable", "nobody"], "account_not_found"],
  },
  {
    name: "account.disable",
    success: async () => {
      await home.json(["account", "add", "claude", "out"]);
      expect(await answer("account.disable", ["account", "disable", "out"])).toMatchObject({ enabled: false });
    },
    bad: [["account", "disable", "--now"], "unknown_flag"],
    missing: [["account", "disable", "nobody"], "account_not_found"],
  },
  {
    name: "account.hold",
    success: async () => {
      await home.json(["account", "add", "claude", "held"]);
      const hold = ["account", "hold", "held", "--for", "2h", "--reason", "mine now"];
      const { holds } = await answer<{ holds: { untilAt: string }[] }>("account.hold", hold);
      expect(holds).toMatchObject([{ reason: "mine now", source: "person" }]);
      expect(Math.abs(Date.parse(holds[0]?.untilAt ?? "") - Date.now() - 7_200_000)).toBeLessThan(60_000);
      expect((await home.refused(2, ["account", "hold", "held", "--until", "2020-01-01T00:00:00Z"])).code).toBe(
        "bad_time",
      );
      expect(await home.json(["account", "hold", "held"])).toMatchObject({ holds: [{ untilAt: null }] });
      expect(await home.json(["status"])).toMatchObject({
        warnings: expect.arrayContaining([
          expect.objectContaining({ code: "account_held", hint: "drover account release claude:held" }),
        ]) as unknown,
      });
    },
    bad: [["account", "hold", "held", "--for", "1h", "--until", "+1h"], "contradiction"],
    missing: [["account", "hold", "nobody"], "account_not_found"],
  },
  {
    name: "account.release",
    success: async () => {
      await home.json(["account", "add", "claude", "freed"]);
      await home.json(["account", "hold", "freed"]);
      expect(await answer("account.release", ["account", "release", "freed"])).toMatchObject({ holds: [], woken: 0 });
      expect(await answer("account.release", ["account", "release", "codex:default"])).toMatchObject({ woken: 0 });
    },
    bad: [["account", "release"], "missing_value"],
    missing: [["account", "release", "nobody"], "account_not_found"],
  },
  {
    name: "account.rm",
    success: async () => {
      const { home: place } = await home.json<{ home: string }>(["account", "add", "claude", "gone"]);
      expect(await answer("account.rm", ["account", "rm", "gone", "--dry-run"])).toMatchObject({ removed: false });
      expect(await answer("account.rm", ["account", "rm", "gone"])).toEqual({
        id: "claude:gone",
        removed: true,
        home: place,
      });
      expect(statSync(place).isDirectory()).toBe(true);
      await home.refused(3, ["account", "show", "claude:gone"]);
    },
    bad: [["account", "rm"], "missing_value"],
    missing: [["account", "rm", "nobody"], "account_not_found"],
  },
  {
    name: "account.login",
    success: async () => {
      const { home: place } = await home.json<{ home: string }>(["account", "add", "claude", "login"]);
      const { status, out } = await home.run(["account", "login", "login", "--json"]);
      const given = JSON.parse(out) as { command: string };
      expect([status, shapes.get("account.login")?.(given)]).toEqual([7, null]);
      expect(given).toMatchObject({ id: "claude:login", ran: false, exitCode: null, loggedIn: null, next: null });
      expect(given.command).toMatch(new RegExp(`^CLAUDE_CONFIG_DIR=${place} claude `));
      expect((await home.run(["account", "login", "login"])).out.split("\n")).toContain(given.command);
    },
    bad: [["account", "login", "custom:default"], "no_login"],
    missing: [["account", "login", "nobody"], "account_not_found"],
  },
  {
    name: "agent.ls",
    success: async () => {
      const bin = join(home.folder, "agents");
      mkdirSync(bin);
      const program = (text: string) => writeFileSync(join(bin, "claude"), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
      const list = async () => {
        const env = { PATH: `${bin}:${process.env["PATH"] ?? ""}` };
        const { items } = await home.json<{ items: { provider: string }[] }>(["agent", "ls"], { env });
        expect(shapes.get("agent.ls")?.({ items, next: null })).toBeNull();
        return items.find((one) => one.provider === "claude");
      };
      program('case $1 in --version) echo "2.1.332 (Claude Code)";; *) echo "{}";; esac');
      expect(await list()).toMatchObject({ found: true, version: "2.1.332", tested: true, loggedIn: false });
      program('echo "9.0.0"');
      expect(await list()).toMatchObject({ version: "9.0.0", tested: false });
      program("echo broken >&2; exit 3");
      expect(await list()).toMatchObject({ version: null, tested: null, detail: expect.stringContaining("broken") });
    },
    bad: [["agent", "ls", "claude"], "too_many_words"],
    missing: null,
  },
  {
    name: "agent.hold",
    success: async () => {
      await home.json(["account", "add", "codex", "ofheld"]);
      const hold = ["agent", "hold", "codex", "--for", "2h", "--reason", "an outage"];
      const on = [{ reason: "an outage", source: "person" }];
      expect(await answer("agent.hold", hold)).toMatchObject({ provider: "codex", holds: on });
      // Those that are told of accounts say that it is the provider.
      for (const account of ["codex:ofheld", "codex:default"])
        expect(await home.json(["account", "show", account])).toMatchObject({ holds: [], providerHolds: on });
      expect((await home.run(["account", "show", "codex:ofheld"])).out).toContain("the provider codex is held until");
      expect((await home.run(["account", "ls"])).out).toMatch(/^codex:ofheld\s.*held.*codex, not codex:ofheld alone/m);
      expect(await home.json(["account", "show", "claude:default"])).toMatchObject({ providerHolds: [] });
      const { items } = await home.json<{ items: { provider: string; holds: unknown[] }[] }>(["agent", "ls"]);
      expect(items.find((one) => one.provider === "codex")?.holds).toMatchObject(on);
      expect((await home.run(["agent", "ls"])).out).toMatch(/^codex \(held: /m);
      await home.json(["agent", "hold", "codex"]);
      expect(await home.json(["status"])).toMatchObject({
        warnings: expect.arrayContaining([
          expect.objectContaining({ code: "provider_held", hint: "drover agent release codex" }),
        ]) as unknown,
      });
      // Who asks for all accounts of it as if they were one is told how.
      const refused = await home.refused(3, ["account", "hold", "codex"]);
      expect([refused.code, refused.hint]).toEqual(["account_not_found", expect.stringContaining("agent hold codex")]);
      await home.json(["agent", "release", "codex"]);
    },
    bad: [["agent", "hold", "gemini"], "bad_choice"],
    missing: null,
  },
  {
    name: "agent.release",
    success: async () => {
      await home.json(["agent", "hold", "claude"]);
      expect(await answer("agent.release", ["agent", "release", "claude"])).toEqual({
        provider: "claude",
        holds: [],
        released: true,
        warnings: [],
      });
      expect(await home.json(["agent", "release", "claude"])).toMatchObject({ released: false });
    },
    bad: [["agent", "release"], "missing_value"],
    missing: null,
  },
  {
    name: "worktree.ls",
    success: async () => expect(await answer("worktree.ls", ["worktree", "ls"])).toEqual({ items: [], next: null }),
    bad: [["worktree", "ls", "--limit", "0"], "out_of_range"],
    missing: null,
  },
  {
    name: "worktree.rm",
    // What it removes and refuses is in agents.test.ts, with a repository.
    success: async () => expect((await home.refused(3, ["worktree", "rm", good])).code).toBe("no_worktree"),
    bad: [["worktree", "rm"], "missing_value"],
    missing: [["worktree", "rm", "/no/such/tree"], "no_worktree"],
  },
  {
    name: "worktree.prune",
    success: async () =>
      expect(await answer("worktree.prune", ["worktree", "prune", "--dry-run"])).toEqual({
        items: [],
        more: false,
        dryRun: true,
      }),
    bad: [["worktree", "prune", "--force"], "unknown_flag"],
    missing: null,
  },
  {
    name: "worktree.handoff",
    success: async () => {
      const shop = join(home.folder, "shop");
      const who = ["-c", "user.name=t", "-c", "user.email=t@drover.invalid"];
      const git = (...args: string[]) => execFileSync("git", [...who, ...args], { cwd: home.folder, encoding: "utf8" });
      git("init", "-q", "-b", "main", shop);
      git("-C", shop, "commit", "-q", "--allow-empty", "-m", "first");
      git("clone", "-q", "--bare", shop, "shop.git");
      git("-C", shop, "remote", "add", "origin", join(home.folder, "shop.git"));
      const work = `git ${who.join(" ")} commit -q --allow-empty -m work`;
      const { id } = await home.json<{ id: string }>(["run", "--cwd", shop, "--worktree", "required", "--shell", work]);
      const handoff = ["worktree", "handoff", id, "--push-only"];
      const given = await answer<{ branch: string; commit: string }>("worktree.handoff", handoff);
      expect(given).toMatchObject({ runId: id, commits: 1, pushed: "now", pullRequest: null });
      expect(git("-C", "shop.git", "rev-parse", given.branch).trim()).toBe(given.commit);
      expect((await home.run(handoff)).out).toBe(
        `${given.branch}, 1 commit, is on origin already\nno pull request: none was wanted\n`,
      );
    },
    bad: [["worktree", "handoff", "x", "--force"], "unknown_flag"],
    missing: [["worktree", "handoff", "run_nobody"], "run_not_found"],
  },
  {
    name: "config.path",
    success: async () =>
      expect(await answer("config.path", ["config", "path"])).toMatchObject({
        exists: false,
        home: join(home.folder, "home"),
      }),
    bad: [["config", "path", "--yaml"], "unknown_flag"],
    missing: null,
  },
  {
    name: "config.show",
    success: async () => {
      const { items } = await answer<{ items: { key: string; text: string; source: string }[] }>("config.show", [
        "config",
        "show",
      ]);
      expect(items).toContainEqual({ key: "limits.leaseMs", value: 60_000, text: "1m", source: "default" });
    },
    bad: [["config", "show", "store"], "too_many_words"],
    missing: null,
  },
  {
    name: "apply",
    success: async () => {
      writeFileSync(join(home.folder, "drover.yaml"), "version: 1\nloops: {declared: {every: 1h, command: [date]}}\n");
      expect(await answer("apply", ["apply", "drover.yaml"])).toMatchObject({ applied: true, counts: { create: 1 } });
    },
    bad: [["apply"], "missing_value"],
    missing: [["apply", "nowhere.yaml"], "file_not_found"],
  },
  {
    name: "config.check",
    success: async () =>
      expect(await answer("config.check", ["config", "check"])).toMatchObject({ ok: true, exists: false }),
    bad: [["config", "check", "--strict"], "unknown_flag"],
    missing: null,
  },
  {
    name: "config.schema",
    success: async () => {
      expect(await answer("config.schema", ["config", "schema"])).toMatchObject({ title: "drover.yaml" });
      expect(await answer("config.schema", ["config", "schema", "config.yaml"])).toMatchObject({
        title: "config.yaml",
      });
    },
    bad: [["config", "schema", "loop.yaml"], "bad_choice"],
    missing: null,
  },
  {
    name: "version",
    success: async () => {
      const given = await answer<{ version: string }>("version", ["version"]);
      expect((await home.run(["--version"])).out).toBe(`drover ${given.version}\n`);
    },
    bad: [["version", "please"], "too_many_words"],
    missing: null,
  },
  {
    name: "completion",
    success: async () => {
      expect(await answer("completion", ["completion", "bash"])).toMatchObject({ shell: "bash" });
    },
    bad: [["completion", "tcsh"], "bad_choice"],
    missing: null,
  },
];

for (const {
  name,
  success,
  bad: [badArgs, badCode],
  missing,
} of cases)
  describe(name, () => {
    test("does what it says, and answers in its shape", async () => {
      await success();
    });
    test(`refuses ${badArgs.join(" ")}: 2 ${badCode}`, async () => {
      expect((await home.refused(2, badArgs)).code).toBe(badCode);
    });
    if (missing !== null)
      test(`does not find ${missing[0].join(" ")}: 3`, async () => {
        expect((await home.refused(3, missing[0])).code).toBe(missing[1]);
      });
    test("has help with its examples", async () => {
      const { status, out } = await home.run([...name.split("."), "--help"]);
      expect(status).toBe(0);
      expect(out).toContain(`Usage: drover ${name.replaceAll(".", " ")}`);
      expect(out).toContain("Examples\n  drover ");
    });
  });

/** Commands that need a machine, a file or a daemon of their own, and where they are driven. */
const ELSEWHERE: { readonly [name: string]: string } = {
  down: "daemon.test.ts",
  backup: "backup.test.ts",
  restore: "backup.test.ts",
  gc: "gc.test.ts",
  export: "bundle.test.ts",
  "import.bundle": "bundle.test.ts",
  "daemon.logs": "service.test.ts",
  "daemon.install": "service.test.ts",
  "daemon.status": "service.test.ts",
  "daemon.uninstall": "service.test.ts",
  "import.crontab": "imports.test.ts",
  "import.systemd": "imports.test.ts",
  "workflow.validate": "workflows.test.ts",
  "workflow.graph": "workflows.test.ts",
  "template.ls": "workflows.test.ts",
  "template.show": "workflows.test.ts",
  "template.render": "workflows.test.ts",
};

test("every command has its cases here, or is driven by the test that says so", () => {
  const named = new Set(cases.map((one) => one.name));
  const without = operations.filter(({ name, hidden }) => hidden !== true && !named.has(name)).map(({ name }) => name);
  const driven = (name: string): boolean => {
    const words = name
      .split(".")
      .map((word) => `"${word}"`)
      .join(", ");
    const file = join(import.meta.dirname, ELSEWHERE[name] ?? "");
    return ELSEWHERE[name] !== undefined && existsSync(file) && readFileSync(file, "utf8").includes(words);
  };
  expect(without.filter((name) => !driven(name))).toEqual([]);
});

test("a slot is explained by why LOOP@TIME", async () => {
  const { items } = await home.json<{ items: { at: string; outcome: string }[] }>(["loop", "slots", "quick"]);
  const slot = items.find((one) => one.outcome === "succeeded");
  const given = await home.json<{ sentence: string; thing: { kind: string } }>(["why", `quick@${slot?.at}`]);
  expect(given.thing.kind).toBe("slot");
  expect(given.sentence).toContain("succeeded");
  await home.refused(3, ["why", "quick@2020-01-01T00:00:00Z"]);
});

test("an attempt is explained by its run", async () => {
  const { steps } = await home.json<{ steps: { attempts: { id: string }[] }[] }>(["show", bad]);
  const given = await home.json<{ thing: unknown; sentence: string }>(["why", steps[0]?.attempts[0]?.id ?? ""]);
  expect(given.thing).toMatchObject({ kind: "run", id: bad });
  expect(given.sentence).toContain("exited with status 3");
});

test("what a page leaves out is said on standard error, and in `next` with --json", async () => {
  const list = ["runs", "--limit", "1"];
  const people = await home.run(list);
  expect(people.out.trimEnd().split("\n")).toHaveLength(1);
  expect(people.err).toMatch(/^1 shown, there are more; next: --cursor \S+\n$/);
  expect((await home.run([...list, "--json"])).err).toBe("");
});

test.each<[args: readonly string[], path: string, hint: string]>([
  [["runs", "--since", "yesterday"], "--since", "1d"],
  [["schedule", "next", "15m", "-n", "0"], "-n", "from 1 to 1000"],
  [["schedule", "next", "bogus"], "expression", "five fields"],
  [["run", "--", "/tmp"], "command", "Name a program in it"],
])("%j names what was typed and what to type", async (args, path, hint) => {
  const error = await home.refused(args[0] === "run" ? 3 : 2, args);
  expect(error.path).toBe(path);
  expect(error.hint).toContain(hint);
});

test("a schedule without instants says so", async () => {
  const { out } = await home.run(["schedule", "next", "@daily", "--from", "9999-12-31T00:00:00Z"]);
  expect(out).toBe("it never fires again\n");
});

test("a jitter over a cron expression's instants is warned of", async () => {
  const added = ["loop", "add", "wide", "--cron", "* * * * *", "--tz", "UTC", "--jitter", "2m", "--", "true"];
  const { warnings } = await home.json<{ warnings: { code: string }[] }>(added);
  expect(warnings).toContainEqual(expect.objectContaining({ code: "long_jitter" }));
  await home.json(["loop", "archive", "wide"]);
});

test("an ambiguous reference is a conflict that lists what it may mean", async () => {
  const error = await home.refused(4, ["show", "run_"]);
  expect(error.code).toBe("ambiguous");
  expect(error.hint).toContain("run_0");
});

test("B-033 a NUL byte is refused at the door", async () => {
  mkdirSync(join(home.folder, "x"), { recursive: true });
  writeFileSync(join(home.folder, "x/body"), '{"shell":"a\\u0000b","cwd":"/"}');
  const { status, out } = await curl(
    home,
    ["-d", `@${join(home.folder, "x/body")}`, "-H", "content-type: application/json"],
    "/api/v1/ops/run",
  );
  expect(status).toBe(400);
  expect((JSON.parse(out) as { error: { code: string } }).error.code).toBe("nul_byte");
});

async function curl(of: Home, args: readonly string[], path: string): Promise<{ status: number; out: string }> {
  const { request } = await import("node:http");
  const { readFileSync } = await import("node:fs");
  const body = args.includes("-d") ? readFileSync((args[1] ?? "").slice(1)) : undefined;
  return new Promise((done, fail) => {
    const outgoing = request(
      {
        socketPath: join(of.folder, "home/drover.sock"),
        path,
        method: "POST",
        headers: { host: "drover", "content-type": "application/json" },
      },
      (incoming) => {
        let out = "";
        incoming.setEncoding("utf8").on("data", (piece: string) => (out += piece));
        incoming.on("end", () => done({ status: incoming.statusCode ?? 0, out }));
      },
    );
    outgoing.on("error", fail);
    outgoing.end(body);
  });
}
