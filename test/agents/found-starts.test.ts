/** Codex in a tree of its own, through the built program and the real command line: it commits, and writes no more than that. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { isOver, openStage, type Stage } from "./harness.ts";
import { describeInstalled } from "./installed.ts";
import { folderOutside } from "./real.ts";

describeInstalled("codex in a tree of its own", () => {
  let stage: Stage;
  beforeAll(async () => {
    // Its sandbox lets the folder for temporary files be written: there nothing would be seen of it.
    const temporary = process.env["TMPDIR"];
    process.env["TMPDIR"] = folderOutside();
    try {
      stage = await openStage();
    } finally {
      if (temporary === undefined) delete process.env["TMPDIR"];
      else process.env["TMPDIR"] = temporary;
    }
  });
  afterAll(() => stage.close());

  const git = (cwd: string, ...args: string[]): string => execFileSync("git", args, { cwd, encoding: "utf8" }).trim();

  test("commits on its branch, in a second try too, and writes nothing of the repository that leads git elsewhere", async () => {
    await stage.account("codex", "shell", "commits");
    const forbidden = [
      join(stage.repository, "written.txt"),
      join(stage.repository, ".git/hooks/pre-commit"),
      join(stage.repository, ".git/config"),
      join(stage.repository, ".git/refs/heads/other"),
      join(stage.repository, ".git/objects/info/alternates"),
    ];
    const own = ["commondir", "gitdir", "config.worktree", "drover.json"].map((name) => `"$own/${name}"`);
    const before = forbidden.map((file) => (existsSync(file) ? readFileSync(file, "utf8") : null));
    const command = [
      "own=$(git rev-parse --absolute-git-dir)",
      "echo more >> README.md",
      "git add -A",
      "git -c user.name=agent -c user.email=agent@drover.invalid commit -qm more",
      `for file in ${[...forbidden, ...own, ".git"].join(" ")}; do (echo planted >> $file && echo $file >> planted.txt) 2> /dev/null; done`,
      "true",
    ].join("; ");
    const id = await stage.loop("commits", [
      ...["--agent", "codex", "--account", "commits", "--model", "gpt-fake", "--expect", "commit"],
      ...["--attempts", "2", "--backoff", "100ms", "--prompt", `SHELL=${command}`],
      ...["--expect", "cmd:test $(git rev-list --count HEAD) -ge 3"],
    ]);
    const run = await stage.seen(id, isOver, "it has ended");
    expect(run, JSON.stringify(run, null, 1)).toMatchObject({ status: "succeeded" });
    expect(run.steps[0]?.attempts).toHaveLength(2);
    const tree = run.worktree?.path ?? "";
    expect(git(tree, "log", "--format=%s", "-2")).toBe("more\nmore");
    expect(git(tree, "status", "--porcelain")).toBe("");
    expect(git(tree, "branch", "--show-current")).toBe(run.worktree?.branch);
    expect(forbidden.map((file) => (existsSync(file) ? readFileSync(file, "utf8") : null))).toEqual(before);
    expect(existsSync(join(tree, "planted.txt"))).toBe(false);
  });
});
