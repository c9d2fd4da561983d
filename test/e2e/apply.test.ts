/** Files that declare loops, accounts and limits, through the real binary: with a daemon and without. */
import { chmodSync, existsSync, mkdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type ErrorBody, type Home, openHome, PROGRAM, type Started, until } from "./drover.ts";

let home: Home;
let repo: string;

beforeEach(() => {
  home = openHome({ prefix: "drover-apply-" });
  repo = join(realpathSync(home.folder), "repo");
  mkdirSync(repo);
});
afterEach(() => home.close());

const write = (name: string, text: string | Uint8Array): string => {
  const file = join(repo, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
};

interface Answer {
  readonly applied: boolean;
  readonly counts: Record<string, number>;
  readonly left: number;
  readonly items: readonly {
    readonly kind: string;
    readonly name: string;
    readonly action: string;
    readonly changes: readonly { readonly path: string; readonly from: unknown; readonly to: unknown }[];
  }[];
}
interface Loop {
  readonly name: string;
  readonly status: string;
  readonly revision: number;
  readonly managedBy: string | null;
  readonly target: { readonly cwd: string; readonly argv?: readonly string[] };
  readonly policy: { readonly timeoutMs: number | null };
}
const apply = (...args: string[]) => home.json<Answer>(["apply", ...args]);
const said = ({ items }: Answer) => items.map(({ kind, name, action }) => `${action} ${kind} ${name}`);
const loop = (name: string) => home.json<Loop>(["loop", "show", name]);
const loops = async () => (await home.json<{ items: Loop[] }>(["loop", "ls"])).items.map(({ name }) => name).toSorted();
const problemsOf = (error: ErrorBody) =>
  (
    error as unknown as {
      problems?: { file: string; line: number; column: number; path?: string; code: string; message: string }[];
    }
  ).problems ?? [];

const FIRST = `version: 1
loops:
  fetch:
    every: 15m
    command: [git, fetch, --all]
    timeout: 40m
  report:
    cron: "30 2 * * *"
    tz: Europe/Rome
    shell: make report
    cwd: sub
    env: {MODE: fast, API_TOKEN: first-value-of-it}
`;

describe("a file and the store", () => {
  test("a dry run shows what would be done and makes not even a store", async () => {
    mkdirSync(join(repo, "sub"));
    const file = write("drover.yaml", FIRST);
    const answer = await apply(file, "--dry-run");
    expect(said(answer)).toEqual(["create loop fetch", "create loop report"]);
    expect(answer.applied).toBe(false);
    expect(existsSync(join(home.folder, "home"))).toBe(false);
    expect((await home.run(["apply", file, "--dry-run"])).out).toMatch(
      /^\+ create {2}loop fetch\n\+ create {2}loop report\n2 to create; nothing was changed \(--dry-run\)\n/,
    );
    expect(existsSync(join(home.folder, "home"))).toBe(false);
  });

  test.each(["without a daemon", "with a daemon"])("what it says is made so, field by field, %s", async (how) => {
    mkdirSync(join(repo, "sub"));
    const file = write("drover.yaml", FIRST);
    if (how === "with a daemon") await home.json(["up"]);
    expect(await apply(file)).toMatchObject({ applied: true, counts: { create: 2, change: 0, unchanged: 0 } });
    expect(await loop("report")).toMatchObject({ managedBy: file, target: { cwd: join(repo, "sub") } });
    expect(await loop("fetch")).toMatchObject({ target: { cwd: repo, argv: ["git", "fetch", "--all"] } });

    // The same again, from another folder and by the folder's name, touches nothing.
    const events = async () => (await home.json<{ items: unknown[] }>(["events"])).items.length;
    const before = await events();
    expect(await apply("repo")).toMatchObject({ applied: false, counts: { unchanged: 2, create: 0 } });
    expect(await events()).toBe(before);

    write("drover.yaml", FIRST.replace("40m", "1h30m").replace("first-value-of-it", "second-value-of-it"));
    const changed = await apply(file);
    expect(changed.items).toMatchObject([
      { name: "fetch", action: "change", changes: [{ path: "timeout", from: "40m", to: "1h30m" }] },
      { name: "report", action: "change", changes: [{ path: "env.API_TOKEN", from: "(hidden)", to: "(hidden)" }] },
    ]);
    expect(await loop("fetch")).toMatchObject({ revision: 2, policy: { timeoutMs: 5_400_000 } });
    expect((await home.run(["apply", file, "--dry-run"])).out).toBe("2 unchanged\n");
  });

  test("an edit by hand is put back to what the file says", async () => {
    const file = write("drover.yaml", "version: 1\nloops: {a: {every: 5m, command: ['true']}}\n");
    await apply(file);
    await home.json(["loop", "edit", "a", "--every", "9m", "--attempts", "3"]);
    expect((await apply(file)).items[0]?.changes).toEqual([
      { path: "every", from: "9m", to: "5m" },
      { path: "attempts", from: 3, to: null },
    ]);
  });

  test("what is not declared any more stays, is told of, and goes with --prune; other files' loops stay", async () => {
    const file = write(
      "drover.yaml",
      "version: 1\nloops:\n  a: {every: 5m, shell: 'true'}\n  b: {every: 5m, shell: 'true'}\n",
    );
    const other = write(
      "ops.drover.yaml",
      "version: 1\nloops:\n  c: {every: 5m, shell: 'true'}\nlimits: {provider:codex: 2}\naccounts: {claude:work: {cap: 1}}\n",
    );
    await home.json(["loop", "add", "mine", "--every", "1h", "--", "true"]);
    await apply(repo);
    write("drover.yaml", "version: 1\nloops:\n  a: {every: 5m, shell: 'true'}\n");
    expect(await apply(file)).toMatchObject({ applied: false, left: 1 });
    expect(said(await apply(file, "--prune", "--dry-run"))).toEqual(["unchanged loop a", "delete loop b"]);
    expect(await loops()).toEqual(["a", "b", "c", "mine"]);
    expect(said(await apply(file, "--prune"))).toEqual(["unchanged loop a", "delete loop b"]);
    expect(await loops()).toEqual(["a", "c", "mine"]);
    expect(await home.json<Loop>(["loop", "unarchive", "b"])).toMatchObject({ status: "active" });

    // Of a folder: also what a file declared that is gone.
    rmSync(other);
    expect(said(await apply(repo, "--prune"))).toEqual([
      "unchanged loop a",
      "delete loop b",
      "delete loop c",
      "delete account claude:work",
      "delete limit provider:codex",
    ]);
    expect(await loops()).toEqual(["a", "mine"]);
    expect((await home.json<{ items: unknown[] }>(["limit", "ls"])).items).toEqual([]);
  });

  test("a loop that somebody else declares is a conflict, until --adopt", async () => {
    const file = write(
      "drover.yaml",
      "version: 1\nloops:\n  a: {every: 5m, shell: 'true'}\n  b: {every: 6m, shell: 'true'}\n",
    );
    await home.json(["loop", "add", "a", "--every", "5m", "--shell", "true", "--cwd", repo]);
    const error = await home.refused(4, ["apply", file]);
    expect(error).toMatchObject({ code: "owned_elsewhere" });
    expect(problemsOf(error)).toMatchObject([
      { file, line: 3, path: "loops.a", message: "the loop a was made by hand" },
    ]);
    expect(await loops()).toEqual(["a"]);
    expect(said(await apply(file, "--adopt"))).toEqual(["adopt loop a", "create loop b"]);
    expect(await loop("a")).toMatchObject({ managedBy: file, revision: 1 });
    const moved = write("moved/other.yaml", "version: 1\nloops:\n  a: {every: 5m, shell: 'true', cwd: ..}\n");
    expect(problemsOf(await home.refused(4, ["apply", moved]))).toMatchObject([
      { message: `the loop a is declared by ${file}` },
    ]);
  });

  test("accounts and limits are made, changed, and refused where they contradict", async () => {
    const text = (cap: number, limit: number) =>
      `version: 1\naccounts:\n  claude:work: {cap: ${cap}, secrets: {ANTHROPIC_API_KEY: "file:keys/a"}}\nlimits:\n  folder:/srv: ${limit}\nloops:\n  agent:\n    every: 1d\n    agent: {provider: custom, command: [./agent.sh, --quick], prompt: Tidy up., permission: full, reason: a test, allowRoot: true}\n`;
    chmodSync(write("agent.sh", "#!/bin/sh\ncat\n"), 0o755);
    const file = write("drover.yaml", text(1, 2));
    await apply(file);
    expect(await home.json(["account", "show", "claude:work"])).toMatchObject({ cap: 1 });
    write("drover.yaml", text(3, 4));
    expect((await apply(file)).items.map(({ name, changes }) => [name, changes])).toEqual([
      ["agent", []],
      ["claude:work", [{ path: "cap", from: 1, to: 3 }]],
      ["folder:/srv", [{ path: "", from: 2, to: 4 }]],
    ]);
    write("drover.yaml", `${text(3, 4)}`.replace("folder:/srv", "account:claude:work"));
    expect(problemsOf(await home.refused(2, ["apply", file]))).toMatchObject([
      { code: "contradiction", path: "accounts.claude:work.cap", line: 3 },
    ]);
  });
});

describe("all or nothing", () => {
  test("what this host lacks is told for every loop, and nothing is made; loops that stay are not looked at", async () => {
    const agent = write("agent.sh", "#!/bin/sh\ncat\n");
    chmodSync(agent, 0o755);
    const stays =
      "  stays:\n    every: 1d\n    agent: {provider: custom, command: [./agent.sh], prompt: x, permission: full, reason: a test, allowRoot: true}\n";
    const file = write("drover.yaml", `version: 1\nloops:\n${stays}`);
    await apply(file);
    rmSync(agent);
    write("drover.yaml", `version: 1\nloops:\n${stays}  good: {every: 5m, command: ['true']}\n`);
    expect(said(await apply(file))).toEqual(["unchanged loop stays", "create loop good"]);

    write(
      "drover.yaml",
      `version: 1\nloops:\n${stays}  good: {every: 6m, command: ['true']}\n  one: {every: 5m, command: [no-such-program]}\n  two:\n    every: 5m\n    shell: "true"\n    cwd: nowhere\n`,
    );
    const before = home.dump();
    for (const args of [["--dry-run"], []]) {
      const error = await home.refused(3, ["apply", file, ...args]);
      expect(problemsOf(error)).toMatchObject([
        { code: "command_not_found", path: "loops.one.command", file, line: 7 },
        { code: "cwd_not_found", path: "loops.two.cwd", file, line: 11, column: 10 },
      ]);
    }
    expect(home.dump()).toBe(before);
    const { err, status } = await home.run(["apply", "drover.yaml"], { cwd: repo });
    expect(status).toBe(3);
    expect(err).toContain('drover.yaml:11:10: the working directory "');
    expect(err).toMatch(/drover: 2 problems in .*drover\.yaml; nothing was changed\n$/);
  });

  test("every problem of every file is told at once, with its line", async () => {
    const one = write(
      "drover.yaml",
      "version: 2\nloops:\n  a:\n    evry: 5m\n    shell: x\n    timeout: 90\nworkflows: {}\nlops: {}\n",
    );
    const two = write(
      "b.drover.yaml",
      "version: 1\nloops:\n  b: {every: 5m, shell: x}\n  a: {every: 0s, shell: x, labels: [a b]}\n",
    );
    const error = await home.refused(2, ["apply", repo]);
    expect(error.code).toBe("bad_declaration");
    expect(
      problemsOf(error).map(
        ({ file, line, path, code }) => `${file === one ? "one" : file === two ? "two" : file}:${line} ${path} ${code}`,
      ),
    ).toEqual([
      "two:4 loops.a.every bad_schedule",
      "two:4 loops.a.labels bad_input",
      "one:1 version unsupported_version",
      "one:7 workflows not_available",
      "one:8 lops unknown_key",
      "one:4 loops.a.evry unknown_key",
      "one:6 loops.a.timeout bad_input",
    ]);
    expect(existsSync(join(home.folder, "home/drover.db"))).toBe(false);
  });

  const long = `version: 1\nloops:\n${Array.from({ length: 9 }, (_, i) => `  l${i}:\n    every: 5m\n    shell: x\n    attempts: 1\n`).join("")}  wrong:\n    attempts: three\n    every: 5m\n    shell: x\n`;
  const bomb = `version: 1\nx: &a0 [lol]\n${Array.from({ length: 30 }, (_, i) => `x${i}: &a${i + 1} [${Array(9).fill(`*a${i}`).join(", ")}]\n`).join("")}`;
  test.each<[what: string, text: string | Uint8Array, place: string, code: string]>([
    ["a wrong type on line 40", long, "40:15", "bad_input"],
    ["a tab", "version: 1\nloops:\n\ta: {}\n", "3:1", "bad_yaml"],
    [
      "a duplicate key",
      "version: 1\nloops:\n  a: {every: 5m, shell: x}\n  a: {every: 6m, shell: x}\n",
      "4:3",
      "duplicate_key",
    ],
    ["an alias bomb", bomb, "1:1", "too_many_aliases"],
    [
      "a cron expression without quotes",
      "version: 1\nloops:\n  a:\n    cron: */5 * * * *\n    shell: x\n",
      "4:15",
      "bad_yaml",
    ],
    ["a merge key", "version: 1\nloops:\n  a: &a {every: 5m, shell: x}\n  b: {<<: *a}\n", "4:7", "unknown_key"],
    ["UTF-16", Buffer.from("\ufeffversion: 1\n", "utf16le"), "1:1", "not_utf8"],
    ["nothing", "", "1:1", "empty_file"],
    ["several documents", "version: 1\n---\nversion: 1\n", "2:1", "bad_yaml"],
    ["a list", "- a\n", "1:1", "bad_input"],
  ])("%s is told with its place", async (_what, text, place, code) => {
    const file = write("drover.yaml", text);
    const error = await home.refused(2, ["apply", file]);
    expect(error.code).toBe(code);
    expect(problemsOf(error).map(({ line, column }) => `${line}:${column}`)).toContain(place);
  });

  test("what is too large, not there, or no file is refused before it is read", async () => {
    const file = write("drover.yaml", `version: 1\n${"# filled up\n".repeat(450_000)}`);
    expect(await home.refused(2, ["apply", file])).toMatchObject({ code: "too_large" });
    expect(await home.refused(3, ["apply", "nowhere.yaml"])).toMatchObject({ code: "file_not_found" });
    mkdirSync(join(repo, "empty"));
    expect(await home.refused(3, ["apply", join(repo, "empty")])).toMatchObject({ code: "no_files" });
    expect(await home.refused(2, ["apply", "/dev/null"])).toMatchObject({ code: "file_unreadable" });
  });
});

describe("--watch", () => {
  const rounds = (of: Started) =>
    of
      .out()
      .trim()
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as Answer & { error?: ErrorBody });

  test("applies what changes; what is wrong changes nothing, is told once, and is over when it is mended", async () => {
    const text = (every: string) =>
      `version: 1\nloops:\n  a:\n    every: ${every}\n    agent: {provider: custom, command: [cat], promptFile: prompt.md, permission: full, reason: t, allowRoot: true}\n`;
    // The first one is wrong already: somebody is writing it.
    const file = write("drover.yaml", text("5 minutes"));
    write("prompt.md", "first");
    const watching = home.start(["apply", file, "--watch", "--json"]);
    await until(() => rounds(watching).length === 1, "the first problem");
    expect(rounds(watching)[0]?.error).toMatchObject({ code: "bad_duration" });
    write("drover.yaml", text("5m"));
    await until(() => rounds(watching).length === 2, "the first good file");
    expect(rounds(watching)[1]).toMatchObject({ applied: true, counts: { create: 1 } });
    write("prompt.md", "second");
    await until(() => rounds(watching).length === 3, "another prompt");
    expect(rounds(watching)[2]).toMatchObject({ applied: true, items: [{ changes: [{ path: "agent.prompt" }] }] });
    write("drover.yaml", `${text("5m")}  b: {}\n`);
    await until(() => rounds(watching).length === 4, "a problem");
    expect(rounds(watching)[3]?.error).toMatchObject({ code: "bad_declaration" });
    expect(await loops()).toEqual(["a"]);
    write("drover.yaml", text("7m"));
    await until(() => rounds(watching).length === 5, "it is mended");
    expect(rounds(watching)[4]).toMatchObject({ applied: true });
    watching.signal("SIGINT");
    expect((await watching.ended).status).toBe(130);
    expect(rounds(watching)).toHaveLength(5);
  });
});

describe("loop edit in an editor", () => {
  /** An editor that does to the file what a script says; `$1` is the file. */
  const editor = (script: string): Record<string, string> => {
    const file = write("edit.sh", `#!/bin/sh\n${script}\n`);
    chmodSync(file, 0o755);
    return { VISUAL: file };
  };
  const kept = (error: ErrorBody): string => /kept in (\S+)\.$/.exec(error.hint ?? "")?.[1] ?? "";

  test("what is saved is the loop's change; what is left as it was changes nothing", async () => {
    await home.json(["loop", "add", "a", "--every", "5m", "--timeout", "40m", "--cwd", repo, "--", "echo", "x y"]);
    const seen = join(repo, "seen");
    await home.json(["loop", "edit", "a"], { env: editor(`cp "$1" ${seen}; sed -i 's/5m/9m/; /timeout/d' "$1"`) });
    expect(readFileSync(seen, "utf8")).toMatch(
      new RegExp(`^# The loop a, .*\n# .*\nevery: 5m\ncommand:\n {2}- echo\n {2}- x y\ncwd: ${repo}\ntimeout: 40m\n$`),
    );
    expect(await loop("a")).toMatchObject({ revision: 2, policy: { timeoutMs: null }, schedule: { everyMs: 540_000 } });
    for (const script of ["true", "echo '# more' >>\"$1\"", ': >"$1"'])
      expect(await home.json(["loop", "edit", "a"], { env: editor(script) })).toMatchObject({
        revision: 2,
        warnings: [{ code: "unchanged" }, { code: "not_firing" }],
      });
  });

  test("what is no loop is told with its line and kept, also where the loop was changed meanwhile", async () => {
    await home.json(["loop", "add", "a", "--every", "5m", "--", "true"]);
    const wrong = await home.refused(2, ["loop", "edit", "a"], { env: editor(`echo 'attempts: three' >>"$1"`) });
    expect(problemsOf(wrong)).toMatchObject([{ line: 7, column: 11, path: "attempts", code: "bad_input" }]);
    expect(readFileSync(kept(wrong), "utf8")).toContain("attempts: three");
    const absent = await home.refused(2, ["loop", "edit", "a"], {
      env: editor(`sed -i 's/- "true"/- no-such-program/' "$1"`),
    });
    expect(problemsOf(absent)).toMatchObject([{ code: "command_not_found", path: "command" }]);
    const raced = await home.refused(4, ["loop", "edit", "a"], {
      env: editor(`${process.execPath} ${PROGRAM} loop edit a --every 8m >/dev/null; sed -i 's/5m/9m/' "$1"`),
    });
    expect(raced.code).toBe("changed_meanwhile");
    expect(readFileSync(kept(raced), "utf8")).toContain("every: 9m");
    expect(await loop("a")).toMatchObject({ schedule: { everyMs: 480_000 } });
    expect(await home.refused(2, ["loop", "edit", "a"], { env: editor("exit 3") })).toMatchObject({
      code: "editor_failed",
    });
    expect(await home.refused(2, ["loop", "edit", "a"])).toMatchObject({ code: "nothing_to_do" });
    expect(await home.refused(3, ["loop", "edit", "b"], { env: editor("true") })).toMatchObject({
      code: "loop_not_found",
    });
    for (const error of [wrong, absent, raced]) rmSync(dirname(kept(error)), { recursive: true });
  });
});
