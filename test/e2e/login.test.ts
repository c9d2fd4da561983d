/** `account login` on a terminal: a pseudo terminal of util-linux's `script`, and a program in place of the provider's. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, PROGRAM, until } from "./drover.ts";

/** That of util-linux: `-e` hands the status on, `-c` takes a command. */
const hasScript = /util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "");
if (!hasScript) console.warn("skipped: there is no `script` of util-linux");

/** Asks for a code on the terminal, as logins do, and keeps what it was started with. */
const CLAUDE = `#!/bin/sh
case "$1 $2" in
"--version ") echo "2.1.332 (Claude Code)" ;;
"auth status")
  if [ -s "$CLAUDE_CONFIG_DIR/code" ]; then echo '{"loggedIn":true,"authMethod":"stand-in"}'; else echo '{"loggedIn":false}'; fi ;;
"auth login")
  umask 022
  [ -t 0 ] && [ -t 1 ] && [ -t 2 ] || { echo "no terminal"; exit 64; }
  env >"$CLAUDE_CONFIG_DIR/env"
  trap 'echo interrupted; exit 9' INT
  printf 'paste the code: '
  read -r code
  [ "$code" = wrong ] && exit 3
  printf %s "$code" >"$CLAUDE_CONFIG_DIR/code"
  echo welcome ;;
*) exit 65 ;;
esac
`;

let home: Home;
const PATH = () => `${join(home.folder, "bin")}:${process.env["PATH"] ?? "/usr/bin:/bin"}`;
beforeAll(() => {
  home = openHome({ prefix: "drover-login-" });
  mkdirSync(join(home.folder, "bin"));
  writeFileSync(join(home.folder, "bin/claude"), CLAUDE, { mode: 0o755 });
});
afterAll(() => home.close());

/** A command in a terminal of its own; what is typed goes in when `after` is on the screen. */
async function onTerminal(words: readonly string[], after: string, typed: string) {
  // In place of the shell, which Ctrl-C would end.
  const line = `exec ${[process.execPath, PROGRAM, ...words].map((word) => `'${word}'`).join(" ")}`;
  const env = { ...home.env, PATH: PATH(), TERM: "xterm", ANTHROPIC_API_KEY: "sk-of-this-terminal" };
  const child: ChildProcess = spawn("script", ["-qec", line, "/dev/null"], { cwd: home.folder, env });
  let screen = "";
  child.stdout?.setEncoding("utf8").on("data", (piece: string) => (screen += piece));
  const ended = new Promise<number | null>((done) => child.once("close", done));
  try {
    await until(() => screen.includes(after) || child.exitCode !== null, `${after} is on the screen:\n${screen}`);
    child.stdin?.write(typed);
    return { status: await ended, screen: screen.replaceAll("\r", "") };
  } finally {
    child.kill("SIGKILL");
  }
}

const findings = async (): Promise<readonly { readonly level: string; readonly message: string }[]> => {
  const { out } = await home.run(["doctor", "--json"], { env: { PATH: PATH() } });
  return (JSON.parse(out) as { findings: { level: string; message: string }[] }).findings;
};
const ofLogin = async (name: string) =>
  (await findings()).filter(({ message }) => message.startsWith(`claude:${name}: `));

describe.skipIf(!hasScript)("account login on a terminal", () => {
  test("the provider's login has the terminal and the account's home, its success is told, and doctor finds it", async () => {
    const { home: place } = await home.json<{ home: string }>(["account", "add", "claude", "work"]);
    expect(statSync(place).mode & 0o777).toBe(0o700);
    expect(await ofLogin("work")).toMatchObject([{ level: "warning", message: "claude:work: not logged in" }]);
    const { status, screen } = await onTerminal(["account", "login", "claude:work"], "paste the code: ", "the-code\n");
    expect(status, screen).toBe(0);
    expect(screen).toContain("welcome\nclaude:work is logged in\n");
    expect(readFileSync(join(place, "code"), "utf8")).toBe("the-code");
    const env = readFileSync(join(place, "env"), "utf8");
    expect(env).toContain(`CLAUDE_CONFIG_DIR=${place}\n`);
    expect(env).toContain("TERM=xterm\n");
    // A key of the terminal would be taken for this account's login.
    expect(env).not.toContain("sk-of-this-terminal");
    expect(statSync(place).mode & 0o777).toBe(0o700);
    expect(await ofLogin("work")).toMatchObject([{ level: "ok", message: "claude:work: logged in (stand-in)" }]);
  });

  test("the status of a login that fails is told, and what waits is not let go", async () => {
    await home.json(["account", "add", "claude", "refused"]);
    await home.json(["account", "hold", "claude:refused"]);
    const words = ["account", "login", "claude:refused"];
    const { status, screen } = await onTerminal(words, "paste the code: ", "wrong\n");
    expect(status, screen).toBe(1);
    expect(screen).toContain("the login ended with status 3\nclaude:refused is not logged in\n");
    expect(screen).toContain("drover account release claude:refused");
    const told = await onTerminal([...words, "--json"], "paste the code: ", "wrong\n");
    expect(JSON.parse(told.screen.slice(told.screen.indexOf("{")))).toMatchObject({
      ran: true,
      exitCode: 3,
      loggedIn: false,
    });
  });

  test("Ctrl-C is the login's to answer", async () => {
    await home.json(["account", "add", "claude", "broken-off"]);
    const { status, screen } = await onTerminal(["account", "login", "broken-off"], "paste the code: ", "\u0003");
    expect(status, screen).toBe(1);
    expect(screen).toMatch(/interrupted\nthe login ended with status 9\nclaude:broken-off is not logged in\n/);
  });

  test("a home that is gone is made again for this user alone; one that others can look into is refused", async () => {
    const { home: place } = await home.json<{ home: string }>(["account", "add", "claude", "gone"]);
    rmSync(place, { recursive: true });
    const { status, screen } = await onTerminal(["account", "login", "gone"], "paste the code: ", "c\n");
    expect(status, screen).toBe(0);
    expect(statSync(place).mode & 0o777).toBe(0o700);
    chmodSync(place, 0o755);
    const refused = await onTerminal(["account", "login", "gone"], "chmod", "");
    expect(refused.status).toBe(2);
    expect(refused.screen).toContain(`chmod 700 ${place}`);
  });

  test("a program that is not there is said to be", async () => {
    await home.json(["account", "add", "codex", "absent"]);
    const { status, screen } = await onTerminal(["account", "login", "codex:absent"], "codex", "");
    expect([status, screen]).toEqual([3, expect.stringContaining("is not found")]);
  });
});
