/** Completion as somebody at a prompt gets it: real shells in a pseudo terminal, which take what was completed as a command's words. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, PROGRAM, until } from "./drover.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;
type Shell = (typeof SHELLS)[number];

const answers = (program: string): boolean =>
  /\d/.test(spawnSync(program, ["--version"], { encoding: "utf8" }).stdout ?? "");
/** That of util-linux: `-c` takes a command. */
const hasScript = /util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "");
const reasonAgainst = (shell: Shell): string | null =>
  !hasScript ? "there is no `script` of util-linux" : answers(shell) ? null : `there is no ${shell}`;
for (const shell of SHELLS) {
  const reason = reasonAgainst(shell);
  if (reason !== null) console.warn(`skipped: completion in ${shell}: ${reason}`);
}

let home: Home;
let good = "";
let bad = "";
/** Where the stand-in for `drover` keeps the words that it was given. */
const typedFile = () => join(home.folder, "typed");

beforeAll(async () => {
  home = openHome({ prefix: "drover-complete-" });
  for (const name of ["my loop", "a:b", "nightly", "nightly two"])
    await home.json(["loop", "add", name, "--every", "1h", "--", "true"]);
  await home.json(["loop", "pause", "nightly"]);
  good = (await home.json<{ id: string }>(["run", "--", "sh", "-c", "echo hi"])).id;
  bad = (JSON.parse((await home.run(["run", "--json", "--", "false"])).out) as { id: string }).id;
  const bin = join(home.folder, "bin");
  mkdirSync(bin);
  // Completion asks the built program; any other command is kept, word by word, and does nothing.
  writeFileSync(
    join(bin, "drover"),
    `#!/bin/sh
if [ "$1" = __complete ]; then exec '${process.execPath}' '${PROGRAM}' "$@"; fi
{ printf '%s\\n' "$@"; echo end; } >>'${typedFile()}'
`,
  );
  chmodSync(join(bin, "drover"), 0o755);
  mkdirSync(join(home.folder, "work/dir one"), { recursive: true });
  for (const file of ["work/prompt one.md", "work/prelude.txt"]) writeFileSync(join(home.folder, file), "");
  for (const shell of SHELLS)
    writeFileSync(join(home.folder, `completion.${shell}`), (await home.run(["completion", shell])).out);
});
afterAll(() => home.close());

/** A shell at its prompt, with completion, in `work/`. */
interface Prompt {
  /** Types a line with its tabs, and Enter; answers the words that `drover` was given. */
  type(line: string): Promise<readonly string[]>;
  /** Types, and waits until the screen shows a text; then drops the line. */
  shows(typed: string, text: string): Promise<void>;
}

const open: ChildProcess[] = [];
afterEach(() => {
  for (const child of open.splice(0)) child.kill("SIGKILL");
});

const READY = "at-the-prompt>";

async function promptOf(shell: Shell): Promise<Prompt> {
  const { folder } = home;
  const script = join(folder, `completion.${shell}`);
  writeFileSync(
    join(folder, "rc.bash"),
    `cd '${folder}/work'; bind 'set enable-bracketed-paste off'; source '${script}'; PS1='${READY} '\n`,
  );
  writeFileSync(
    join(folder, ".zshrc"),
    `cd '${folder}/work'; autoload -U compinit; compinit -u -D; source '${script}'; PS1='${READY} '; unsetopt prompt_sp\n`,
  );
  const line = {
    bash: `exec bash --noprofile --rcfile '${folder}/rc.bash' -i`,
    zsh: "exec zsh -d -i",
    fish: `exec fish --no-config -i -C "cd '${folder}/work'; source '${script}'; function fish_prompt; echo -n '${READY} '; end; function fish_greeting; end"`,
  }[shell];
  const child = spawn("script", ["-qec", line, "/dev/null"], {
    cwd: folder,
    env: { ...home.env, PATH: `${folder}/bin:${home.env["PATH"]}`, ZDOTDIR: folder, TERM: "xterm", SHELL: "/bin/sh" },
  });
  open.push(child);
  let screen = "";
  child.stdout?.setEncoding("utf8").on("data", (piece: string) => (screen += piece));
  const prompts = () => screen.split(READY).length - 1;
  await until(() => prompts() > 0, `${shell} is at its prompt:\n${screen}`);
  const kept = () => (existsSync(typedFile()) ? readFileSync(typedFile(), "utf8").split("end\n").slice(0, -1) : []);
  return {
    async type(typed) {
      const before = kept().length;
      child.stdin?.write(`${typed}\r`);
      const after = await until(
        () => (kept().length > before ? kept() : null),
        `${shell} ran what was typed: ${typed}\n${screen}`,
      );
      return (after?.at(-1) ?? "").split("\n").slice(0, -1);
    },
    async shows(typed, text) {
      const from = screen.length;
      child.stdin?.write(typed);
      await until(() => screen.slice(from).includes(text), `${shell} shows ${text}:\n${screen}`);
      child.stdin?.write("\u0003");
    },
  };
}

describe.each(SHELLS)("%s", (shell) => {
  const here = test.skipIf(reasonAgainst(shell) !== null);

  here("completes commands, flags, choices, names with spaces and colons, and ids", async () => {
    const { type } = await promptOf(shell);
    expect(await type("drover loop sh\tnightly")).toEqual(["loop", "show", "nightly"]);
    expect(await type("drover runs --stat\tfai\t")).toEqual(["runs", "--status", "failed"]);
    expect(await type("drover loop show my\t")).toEqual(["loop", "show", "my loop"]);
    expect(await type("drover loop show 'my\t")).toEqual(["loop", "show", "my loop"]);
    expect(await type('drover loop show "my\t')).toEqual(["loop", "show", "my loop"]);
    expect(await type("drover loop show my\\ l\t")).toEqual(["loop", "show", "my loop"]);
    expect(await type("drover loop show a:\t")).toEqual(["loop", "show", "a:b"]);
    expect(await type("drover runs --loop=my\t")).toEqual(["runs", "--loop=my loop"]);
    expect(await type("drover loop resume n\t")).toEqual(["loop", "resume", "nightly"]);
    expect(await type(`drover show ${good.slice(-6, -2)}\t`)).toEqual(["show", good.slice(-6)]);
    expect(await type(`drover logs ${bad} --ste\tm\t`)).toEqual(["logs", bad, "--step", "main"]);
    expect(await type("drover account show claude:d\t")).toEqual(["account", "show", "claude:default"]);
    // A flag that was given is not offered again, so that what is typed stays.
    expect(await type("drover runs --limit 3 --lim\t")).toEqual(["runs", "--limit", "3", "--lim"]);
  });

  here("completes files and folders, and what another command takes", async () => {
    const { type } = await promptOf(shell);
    expect(await type("drover run --prompt-file prom\t")).toEqual(["run", "--prompt-file", "prompt one.md"]);
    expect(await type("drover run --prompt-file=prel\t")).toEqual(["run", "--prompt-file=prelude.txt"]);
    expect(await type("drover run --cwd d\tx")).toEqual(["run", "--cwd", "dir one/x"]);
    expect(await type("drover run -- cat prel\t")).toEqual(["run", "--", "cat", "prelude.txt"]);
  });

  here("lists runs with their loop or command and their status", async () => {
    const { shows } = await promptOf(shell);
    await shows("drover show \t\t", "false failed");
  });

  here("offers nothing, and says nothing, where nothing fits", async () => {
    const { type } = await promptOf(shell);
    expect(await type("drover loop show zebra\t")).toEqual(["loop", "show", "zebra"]);
    expect(await type("drover no such\t")).toEqual(["no", "such"]);
  });
});

describe("what the shells are told", () => {
  const told = async (words: readonly string[], env: Record<string, string> = {}) => {
    const { status, out, err } = await home.run(["__complete", "fish", ...words], { env });
    expect({ status, err }).toEqual({ status: 0, err: "" });
    return out.split("\n").slice(0, -1);
  };
  const values = async (...words: string[]) => (await told(words)).slice(1).map((line) => line.split("\t")[0]);

  test("commands, verbs of a noun, and topics of help", async () => {
    expect(await values("lo")).toEqual(["loop", "logs"]);
    expect(await values("loop", "un")).toEqual(["unarchive"]);
    expect(await values("--json", "vers")).toEqual(["version"]);
    expect(await values("help", "loop", "una")).toEqual(["unarchive"]);
    expect(await values("help", "exit")).toEqual(["exit-codes"]);
    expect(await told(["worktr"])).toEqual(["offers", "worktree\tls, rm, handoff, prune"]);
  });

  test("values by what was typed before", async () => {
    expect(await values("run", "--agent", "c")).toEqual(["claude", "codex", "custom"]);
    expect(await values("run", "--agent", "codex", "--account", "d")).toEqual(["default"]);
    expect(await values("loop", "add", "x", "--tz", "Europe/Rom")).toEqual(["Europe/Rome"]);
    expect(await values("logs", good, "--attempt", "")).toEqual(["1"]);
    expect(await values("loop", "pause", "")).toEqual(["a:b", "my loop", "nightly two"]);
    expect(await values("retry", "")).toEqual([bad.slice(-6), good.slice(-6)]);
    expect(await values("cancel", "")).toEqual([]);
    expect(await values("show", good.slice(0, 20))).toContain(good);
    expect(await values("why", "n")).toEqual(["nightly", "nightly two"]);
  });

  test("a flag that takes several values is offered again, one that contradicts is not, nor one of a later part", async () => {
    expect(await values("run", "--label", "a", "--lab")).toEqual(["--label"]);
    expect(await values("run", "--detach", "--wai")).toEqual(["--wait-limit"]);
    expect(await values("run", "--pro")).toEqual(["--prompt", "--prompt-file"]);
    expect(await values("logs", good, "-fn5", "--fol")).toEqual([]);
    expect(await values("logs", good, "-fn5", "--tai")).toEqual([]);
  });

  test("who else completes a word", async () => {
    expect(await told(["run", "--", "git", ""])).toEqual(["command"]);
    expect(await told(["run", "--prompt-file=x"])).toEqual(["files --prompt-file="]);
    expect(await told(["run", "--cwd", ""])).toEqual(["folders "]);
    expect(await values("show", "--", good.slice(-6, -3))).toEqual([good.slice(-6)]);
  });

  test("no store, a broken one or one that is away: nothing is offered, said or made", async () => {
    const fresh = join(home.folder, "fresh");
    expect(await told(["loop", "show", ""], { DROVER_HOME: fresh })).toEqual(["offers"]);
    expect(existsSync(fresh)).toBe(false);
    const broken = join(home.folder, "broken");
    mkdirSync(broken, { mode: 0o700 });
    writeFileSync(join(broken, "drover.db"), "this is no database, and was never one\n".repeat(200));
    writeFileSync(join(broken, "config.yaml"), "caps: [\n");
    expect(await told(["loop", "show", ""], { DROVER_HOME: broken })).toEqual(["offers"]);
    expect(await told(["loop", "sho"], { DROVER_HOME: broken })).toHaveLength(2);
    expect(readdirSync(broken).toSorted()).toEqual(["config.yaml", "drover.db"]);
    expect(await told(["show", ""], { DROVER_STORE: "postgres://nobody@127.0.0.1:1/none" })).toEqual(["offers"]);
  });
});
