/** Bundles: what one machine has, taken in by another, through the built program. */
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

let one: Home;
let two: Home;
beforeEach(() => {
  one = openHome();
  two = openHome();
});
afterEach(async () => {
  await one.close();
  await two.close();
});

interface Entry {
  readonly kind: string;
  readonly name: string;
  readonly outcome: string;
  readonly notes: readonly string[];
}
interface Imported {
  readonly applied: boolean;
  readonly entries: readonly Entry[];
  readonly todo: readonly string[];
  readonly history: { readonly runs: number; readonly slots: number } | null;
}
const words = ({ entries }: Imported): string[] =>
  entries.map(({ kind, name, outcome }) => `${kind} ${name} ${outcome}`);
/** The answer of an import that does not end with 0. */
async function kept(args: readonly string[]): Promise<Imported> {
  const { status, out, err } = await two.run(["import", "bundle", ...args, "--json"]);
  expect([status, err]).toEqual([4, ""]);
  return JSON.parse(out) as Imported;
}
const loopsOf = async (home: Home) =>
  (await home.json<{ items: { name: string; status: string }[] }>(["loop", "ls"])).items.map(
    ({ name, status }) => `${name} ${status}`,
  );

/** A bundle of lines with a right last one. */
function sealed(lines: readonly object[]): string {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const sha256 = createHash("sha256").update(text).digest("hex");
  return `${text}${JSON.stringify({ kind: "end", lines: lines.length, sha256 })}\n`;
}
const head = { kind: "bundle", version: 1, madeAt: "2026-01-01T00:00:00.000Z", madeBy: "0.1.0", history: false };
const loopLine = (name: string, form: object) => ({
  kind: "loop",
  id: `loop_${"0".repeat(25)}${name.length}`,
  name,
  status: "active",
  form,
  withheld: [],
});

/** Loops of several kinds, an account, a limit. */
async function furnish(home: Home): Promise<void> {
  mkdirSync(join(home.folder, "only-here"));
  await home.json(["account", "add", "claude", "work", "--cap", "2", "--env", "MODE=quiet"]);
  await home.json(["limit", "set", "provider:claude", "3"]);
  await home.json([
    "loop",
    "add",
    "fetch",
    "--every",
    "15m",
    "--attempts",
    "3",
    "--label",
    "net",
    "--cwd",
    "/",
    "--",
    "git",
    "fetch",
  ]);
  await home.json([
    ...[
      "loop",
      "add",
      "night",
      "--cron",
      "30 2 * * *",
      "--tz",
      "Europe/Rome",
      "--catch-up",
      "none",
      "--overlap",
      "queue",
    ],
    ...[
      "--env",
      "API_TOKEN=tok-1234567890",
      "--env",
      "MODE=fast",
      "--secret",
      "KEY=env:KEY",
      "--shell",
      "echo $API_TOKEN | tr a-z A-Z",
    ],
    ...["--cwd", join(home.folder, "only-here")],
  ]);
  await home.json([
    ...[
      "loop",
      "add",
      "agent",
      "--dynamic",
      "--agent",
      "custom",
      "--agent-command",
      "/bin/cat",
      "--prompt",
      "Tidy up.\nThen stop.",
    ],
    ...["--timeout", "10m", "--cwd", "/"],
  ]);
}

describe("a bundle", () => {
  test("brings loops, accounts and limits to another machine: paused, without secrets, once", async () => {
    await furnish(one);
    const file = join(one.folder, "all.bundle");
    const made = await one.json<{ loops: number; withheld: string[] }>(["export", file]);
    expect(made).toMatchObject({ loops: 3, accounts: 1, limits: 1, runs: 0, withheld: ["loop night env.API_TOKEN"] });
    expect(readFileSync(file, "utf8")).not.toContain("tok-1234567890");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect((await one.refused(4, ["export", file])).code).toBe("target_exists");
    // The same on standard output.
    const lines = (text: string) => text.trim().split("\n").slice(1, -1);
    expect(lines((await one.run(["export"])).out)).toEqual(lines(readFileSync(file, "utf8")));

    const dry = await two.json<Imported>(["import", "bundle", file, "--dry-run"]);
    expect(words(dry)).toEqual([
      "account claude:work create",
      "limit provider:claude create",
      "loop agent create",
      "loop fetch create",
      "loop night create",
    ]);
    expect(existsSync(join(two.folder, "home/drover.db"))).toBe(false);
    const done = await two.json<Imported>(["import", "bundle", file]);
    expect(words(done)).toEqual(words(dry));
    expect(done.todo).toEqual([
      "log in: drover account login claude:work",
      "give loop night its env.API_TOKEN, which the bundle does not carry: --env, or --secret",
    ]);
    expect(await loopsOf(two)).toEqual(["agent paused", "fetch paused", "night paused"]);
    // One's folder is there for two as well, on this machine: it is told where it is not.
    expect(await two.json(["account", "show", "claude:work"])).toMatchObject({ cap: 2, env: { MODE: "quiet" } });
    const again = join(two.folder, "again.bundle");
    await two.json(["export", again]);
    const forms = (path: string) =>
      readFileSync(path, "utf8")
        .split("\n")
        .filter((line) => line.includes('"kind":"loop"'))
        .map((line) => JSON.parse(line) as { name: string; form: object })
        .map(({ name, form }) => [name, form]);
    expect(forms(again)).toEqual(forms(file));

    expect(words(await two.json<Imported>(["import", "bundle", file]))).toEqual(
      words(dry).map((word) => word.replace("create", "same")),
    );
  });

  test("what differs here is a conflict and nothing is done; --skip takes the rest, --replace takes it and keeps what was withheld", async () => {
    await furnish(one);
    const file = join(one.folder, "all.bundle");
    await one.json(["export", file]);
    await two.json([
      "loop",
      "add",
      "night",
      "--every",
      "1h",
      "--env",
      "API_TOKEN=mine-1234567",
      "--cwd",
      "/",
      "--",
      "true",
    ]);
    const before = two.dump();
    const refused = await kept([file]);
    expect(refused.applied).toBe(false);
    expect(words(refused)).toContain("loop night conflict");
    expect(two.dump()).toBe(before);
    expect(words(await two.json<Imported>(["import", "bundle", file, "--skip"]))).toContain("loop night skip");
    expect(await loopsOf(two)).toEqual(["agent paused", "fetch paused", "night active"]);
    expect((await two.refused(2, ["import", "bundle", file, "--replace"])).code).toBe("needs_yes");
    expect(words(await two.json<Imported>(["import", "bundle", file, "--replace", "--yes"]))).toContain(
      "loop night replace",
    );
    expect(await two.json(["loop", "show", "night"])).toMatchObject({ target: { env: { MODE: "fast" } } });
    expect(two.dump()).toContain("mine-1234567");
    expect(words(await two.json<Imported>(["import", "bundle", file]))).toContain("loop night same");
  });

  test("history comes too: runs, their attempts and slots, each once, also after a crash in the middle", async () => {
    await one.json(["up"]);
    await one.json([
      "loop",
      "add",
      "often",
      "--every",
      "1s",
      "--env",
      "DB_PASSWORD=pass-98765432",
      "--shell",
      "echo $DB_PASSWORD",
    ]);
    const slots = async (home: Home) =>
      (
        await home.json<{ items: { at: string; outcome: string | null; runId: string | null }[] }>([
          "loop",
          "slots",
          "often",
        ])
      ).items;
    await until(
      async () => (await slots(one)).filter(({ outcome }) => outcome === "succeeded").length > 2,
      "three slots",
    );
    await one.json(["loop", "pause", "often"]);
    await until(async () => (await slots(one)).every(({ outcome }) => outcome !== null), "all have ended");
    await one.json(["run", "--", "sh", "-c", "exit 3"]).catch(() => {});
    const file = join(one.folder, "all.bundle");
    await one.json(["export", file, "--history"]);
    expect(readFileSync(file, "utf8")).not.toContain("pass-98765432");

    for (const step of ["defined", "history"])
      expect((await two.run(["import", "bundle", file], { env: { DROVER_TEST_KILL: step } })).signal, step).toBe(
        "SIGKILL",
      );
    const done = await two.json<Imported>(["import", "bundle", file]);
    expect(words(done)).toEqual(["loop often same"]);
    interface Run {
      readonly id: string;
      readonly status: string;
      readonly exitCode: number | null;
    }
    const runs = async (home: Home) =>
      (await home.json<{ items: Run[] }>(["runs"])).items.map(({ id, status, exitCode }) => ({ id, status, exitCode }));
    expect(await runs(two)).toEqual(await runs(one));
    const short = async (home: Home) => (await slots(home)).map(({ at, outcome, runId }) => ({ at, outcome, runId }));
    expect(await short(two)).toEqual(await short(one));
    const [last] = await runs(two);
    expect(last).toMatchObject({ status: "failed", exitCode: 3 });
    expect((await two.json<{ sentence: string }>(["why", last?.id ?? ""])).sentence).toContain("exit");
    expect(await two.json(["show", last?.id ?? ""])).toMatchObject({ steps: [{ attempts: [{ exitCode: 3 }] }] });
    expect((await two.json<Imported>(["import", "bundle", file])).history).toEqual({ runs: 0, slots: 0 });
  });

  test("what is cut, edited, newer or no bundle is refused in words, and nothing is changed", async () => {
    await furnish(one);
    const file = join(one.folder, "all.bundle");
    await one.json(["export", file]);
    await two.json(["loop", "add", "mine", "--every", "1h", "--", "true"]);
    const before = two.dump();
    const text = readFileSync(file, "utf8");
    const rows = text.trimEnd().split("\n");
    const lines = rows.slice(0, -1).map((row) => JSON.parse(row) as { [key: string]: unknown });
    const cases: readonly (readonly [number, string, string])[] = [
      [2, "bundle_cut", text.slice(0, text.length / 2)],
      [2, "bundle_cut", `${rows.slice(0, -1).join("\n")}\n`],
      [2, "bundle_changed", text.replace('"MODE":"fast"', '"MODE":"slow"')],
      [2, "bundle_changed", [rows[0], ...rows.slice(2)].join("\n") + "\n"],
      [2, "bundle_changed", `${text}${rows[1]}\n`],
      [4, "newer_bundle", text.replace('"version":1', '"version":2')],
      [2, "not_a_bundle", ""],
      [2, "not_a_bundle", "loops: []\n"],
      [2, "not_a_bundle", '{"a":1}\n'],
      [2, "bundle_damaged", `${rows[0]}\n{broken\n`],
      [2, "bundle_invalid", sealed([head, { kind: "strange" }])],
      [2, "bundle_invalid", sealed([head, { ...loopLine("a", {}), id: "../../etc/passwd" }])],
      [2, "bundle_invalid", sealed([head, { ...loopLine("a", {}), name: "../a" }])],
      [2, "bundle_invalid", sealed([head, loopLine("a", { shell: "a\0b" })])],
      [
        2,
        "bundle_invalid",
        sealed([head, { kind: "account", provider: "claude", name: "../../x", form: {}, withheld: [] }]),
      ],
    ];
    for (const [nth, [exit, code, content]] of cases.entries()) {
      const path = join(two.folder, `${nth}.bundle`);
      writeFileSync(path, content);
      expect((await two.refused(exit, ["import", "bundle", path, "--yes"])).code, `${nth} ${code}`).toBe(code);
    }
    expect((await two.refused(3, ["import", "bundle", "absent"])).code).toBe("file_not_found");
    expect(two.dump()).toBe(before);
    expect(lines.length).toBeGreaterThan(4);
  });

  test("a path that escapes, a file of this host, a form that cannot be: each is named, and nothing is done", async () => {
    const path = join(two.folder, "bad.bundle");
    const shell = { every: "1h", shell: "true" };
    const lines = [
      loopLine("a", { ...shell, cwd: "/srv/../../etc" }),
      loopLine("bb", { ...shell, secrets: { KEY: "file:../../../etc/shadow" } }),
      loopLine("ccc", { every: "1h", agent: { provider: "custom", command: ["/bin/cat"], promptFile: "/etc/passwd" } }),
      loopLine("dddd", { every: "1 hour", shell: "true" }),
      loopLine("eeeee", { ...shell, tyop: 1 }),
      loopLine("ffffff", { ...shell, cwd: "/not/on/this/machine" }),
      { kind: "account", provider: "claude", name: "w", form: { home: "/srv/keys" }, withheld: [] },
    ];
    writeFileSync(path, sealed([head, ...lines]));
    const refused = await kept([path]);
    expect(words(refused)).toEqual([
      "loop a blocked",
      "loop bb blocked",
      "loop ccc blocked",
      "loop dddd blocked",
      "loop eeeee blocked",
      "loop ffffff create",
      "account claude:w blocked",
    ]);
    for (const nth of [0, 1, 2, 6]) expect(refused.entries[nth]?.notes.join(" ")).toContain("path_escapes");
    expect(refused.entries[5]?.notes).toEqual(["its folder /not/on/this/machine is not here"]);
    expect(existsSync(join(two.folder, "home/drover.db"))).toBe(false);
    expect(
      words(await two.json<Imported>(["import", "bundle", path, "--skip"])).filter((word) => word.includes("create")),
    ).toHaveLength(1);
    expect(await loopsOf(two)).toEqual(["ffffff paused"]);
    expect(readdirSync(join(two.folder, "home")).includes("accounts")).toBe(false);
  });
});
