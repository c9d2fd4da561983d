/** `run` and `logs -f` on a real terminal: the line that says how a run stands, and what is left on the screen whatever ends the command. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, PROGRAM, until } from "./drover.ts";
import { hasScript, openTerminal, type Terminal } from "./terminal.ts";

if (!hasScript) console.warn("skipped: there is no `script` of util-linux");
const hasBash = spawnSync("bash", ["--version"]).status === 0;

/** A line of the state, as it is drawn. */
const LINE = /^(queued|starting|running|ending|waiting) \d/m;

let home: Home;
let gates = 0;
beforeAll(async () => {
  home = openHome({ prefix: "drover-terminal-" });
  mkdirSync(join(home.folder, "gates"));
  await home.run(["up"]);
});
afterAll(() => home.close());

/** A command that says `begun`, then waits for its gate, then says `over`. */
function gated(): { readonly words: readonly string[]; open(): void; shut(): void } {
  const gate = join(home.folder, "gates", String(gates++));
  const script = `echo begun; until [ -e ${gate} ]; do sleep 0.05; done; echo over`;
  return { words: ["sh", "-c", script], open: () => writeFileSync(gate, ""), shut: () => rmSync(gate) };
}

const quoted = (words: readonly string[]): string =>
  words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
const drover = (words: readonly string[]): string => quoted([process.execPath, PROGRAM, ...words]);

async function on(
  line: string,
  use: (terminal: Terminal) => Promise<void>,
  more: { readonly env?: Readonly<Record<string, string>>; readonly columns?: number } = {},
): Promise<void> {
  const terminal = openTerminal(line, {
    env: { ...home.env, ...more.env },
    cwd: home.folder,
    ...(more.columns === undefined ? {} : { columns: more.columns }),
  });
  try {
    await use(terminal);
  } finally {
    terminal.close();
  }
}

describe.skipIf(!hasScript)("a run on a terminal", () => {
  test("its state, its time and the usual time stand below its output, and nothing of it is left when it has ended", async () => {
    const { words, open, shut } = gated();
    open();
    expect((await home.run(["run", "--", ...words])).status).toBe(0);
    // The same work again: now it is known how long it usually takes.
    shut();
    await on(`exec ${drover(["run", "--", ...words])}`, async (terminal) => {
      await terminal.shows(/^begun\nrunning \d[\d.]*m?s of usually \d[\d.]*m?s$/m);
      open();
      expect(await terminal.ended).toBe(0);
      expect(terminal.screen()).toMatch(/^begun\nover\nrun_\w+ succeeded after [\d.]+m?s \(usually [\d.]+m?s\)$/);
    });
  });

  test("Ctrl-C cancels the run, says so, and leaves the screen clean", async () => {
    const { words } = gated();
    await on(`exec ${drover(["run", "--", ...words])}`, async (terminal) => {
      await terminal.shows(LINE);
      terminal.type("\u0003");
      expect(await terminal.ended).toBe(130);
      expect(terminal.screen().replace("^C", "")).toMatch(
        /^begun\ncancelling; another Ctrl-C leaves at once\nrun_\w+ cancelled after [^\n]*: interrupted \(Ctrl-C\)$/,
      );
    });
  });

  test("a second Ctrl-C leaves at once, with the run's end still to come", async () => {
    const stubborn = ["sh", "-c", "trap '' TERM; echo begun; while :; do sleep 0.1; done"];
    await on(`exec ${drover(["run", "--grace", "20s", "--", ...stubborn])}`, async (terminal) => {
      await terminal.shows(LINE);
      terminal.type("\u0003");
      await terminal.shows(/^ending \d.*: its processes are being ended$/m);
      terminal.type("\u0003");
      expect(await terminal.ended).toBe(130);
      expect(terminal.screen()).not.toMatch(LINE);
    });
  });

  test.each(["TERM", "HUP"])(
    "SIG%s takes the line away before it ends the command; the run goes on",
    async (signal) => {
      const { words, open } = gated();
      const pidFile = join(home.folder, `pid-${signal}`);
      await on(`echo $$ >${pidFile}; exec ${drover(["run", "--", ...words])}`, async (terminal) => {
        await terminal.shows(LINE);
        process.kill(Number(readFileSync(pidFile, "utf8")), `SIG${signal}`);
        expect(await terminal.ended).toBe(signal === "TERM" ? 143 : 129);
        expect(terminal.screen().split("\n")[0]).toBe("begun");
        expect(terminal.screen()).not.toMatch(LINE);
        const { items } = await home.json<{ items: { id: string; status: string }[] }>(["runs", "--limit", "1"]);
        expect(items[0]?.status).toBe("running");
        open();
      });
    },
  );

  test.skipIf(!hasBash)("Ctrl-Z gives the terminal back clean, and `fg` goes on", async () => {
    const { words, open } = gated();
    await on("exec bash --norc --noprofile -i", async (terminal) => {
      terminal.type(`PS1='prompt> '; clear() { :; }\n`);
      await terminal.shows("prompt> ");
      terminal.type(`${drover(["run", "--", ...words])}\n`);
      await terminal.shows(LINE);
      terminal.type("\u001a");
      await terminal.shows("Stopped");
      expect(terminal.screen()).not.toMatch(LINE);
      terminal.type("stty -a | tr ';' '\\n' | grep -o -w -- '-*icanon\\|-*echo'; fg\n");
      await terminal.shows(/^icanon\necho$/m);
      await terminal.shows(LINE);
      open();
      await terminal.shows(/run_\w+ succeeded/);
      expect(terminal.screen()).not.toMatch(LINE);
      terminal.type("exit\n");
    });
  });

  test("on 20 columns the line stays one line", async () => {
    const { words, open } = gated();
    await on(
      `exec ${drover(["run", "--attempts", "3", "--", ...words])}`,
      async (terminal) => {
        await terminal.shows(LINE);
        const drawn = [...terminal.raw().matchAll(/\r\u001b\[K([^\r\n]*)/g)].map(([, text = ""]) =>
          // oxlint-disable-next-line no-control-regex -- that is what is looked for
          text.replace(/\u001b\[[0-9;]*m/g, ""),
        );
        expect(Math.max(...drawn.map((text) => text.length))).toBeLessThan(20);
        open();
        expect(await terminal.ended).toBe(0);
        expect(terminal.screen()).not.toMatch(LINE);
      },
      { columns: 20 },
    );
  });

  test("with its output in a file, the file holds the output alone and the line shows the last of it", async () => {
    const { words, open } = gated();
    await on(`${drover(["run", "--", ...words])} >taken; echo status $?`, async (terminal) => {
      await terminal.shows(/^running \d.*: begun$/m);
      open();
      await terminal.shows("status 0");
      expect(readFileSync(join(home.folder, "taken"), "utf8")).toBe("begun\nover\n");
      expect(terminal.screen()).toMatch(/^run_\w+ succeeded after [^\n]*\nstatus 0$/);
    });
  });

  test("a reader that leaves early takes the rest of the output with it, not the run nor the screen", async () => {
    const { words, open } = gated();
    await on(`${drover(["run", "--", ...words])} | head -n 1; echo left`, async (terminal) => {
      await terminal.shows("begun");
      open();
      await terminal.shows("left");
      expect(await terminal.ended).toBe(0);
      expect(terminal.screen()).toMatch(/^begun\nrun_\w+ succeeded after [^\n]*\nleft$/);
    });
  });

  test("what it prints cannot reach the terminal, in the line no more than above it", async () => {
    const { open, words } = gated();
    const nasty = (words[2] ?? "").replace("echo begun", "printf 'be\\033[2Jgun \\033]0;title\\007x\\n'");
    await on(`${drover(["run", "--", "sh", "-c", nasty])} >/dev/null`, async (terminal) => {
      await terminal.shows(/^running \d.*: begun x$/m);
      open();
      expect(await terminal.ended).toBe(0);
      expect(terminal.raw()).not.toContain("\u001b[2J");
      expect(terminal.raw()).not.toContain("\u001b]");
    });
  });

  test("without redrawing: a dumb terminal and a CI get no control sequence, NO_COLOR no colour", async () => {
    for (const [name, value] of [
      ["TERM", "dumb"],
      ["CI", "true"],
      ["NO_COLOR", "1"],
    ] as const) {
      const { words, open } = gated();
      await on(
        `exec ${drover(["run", "--", ...words])}`,
        async (terminal) => {
          await terminal.shows(name === "NO_COLOR" ? LINE : "begun");
          open();
          expect(await terminal.ended).toBe(0);
          expect(terminal.raw()).toMatch(name === "NO_COLOR" ? /\u001b\[K/ : /^[^\u001b]*$/);
          expect(terminal.raw()).not.toMatch(/\u001b\[[0-9;]*m/);
        },
        { env: { [name]: value } },
      );
    }
  });

  test("the run of a queue says why it waits", async () => {
    const { words, open } = gated();
    await home.json(["limit", "set", "provider:custom", "1"]);
    const script = join(home.folder, "agent.sh");
    writeFileSync(script, `#!/bin/sh\ncat >/dev/null; ${words[2] ?? ""}\n`, { mode: 0o755 });
    const run = ["run", "--agent", "custom", "--worktree", "off", "--prompt", "x", "--agent-command", script];
    const before = home.start([...run.slice(0, 1), "--detach", ...run.slice(1)]);
    await before.ended;
    await on(`exec ${drover(run)}`, async (terminal) => {
      await terminal.shows(/^queued \d.*: /m);
      open();
      expect(await terminal.ended).toBe(0);
      expect(terminal.screen()).not.toMatch(LINE);
    });
  });

  test("the daemon dies in the middle: said, waited out, and the true end is told", async () => {
    const own = openHome({ prefix: "drover-terminal-" });
    try {
      await own.run(["up"]);
      const gate = join(own.folder, "gate");
      const words = ["sh", "-c", `echo begun; until [ -e ${gate} ]; do sleep 0.05; done; exit 3`];
      const terminal = openTerminal(`exec ${drover(["run", "--", ...words])}`, { env: own.env, cwd: own.folder });
      try {
        await terminal.shows(LINE);
        const { daemon } = await own.json<{ daemon: { pid: number } }>(["status"]);
        process.kill(daemon.pid, "SIGKILL");
        await terminal.shows(/^the daemon is away; run_\w+ goes on without it/m);
        await terminal.shows(/the daemon is away: `drover up` starts one$/m);
        writeFileSync(gate, "");
        expect((await own.run(["up"])).status).toBe(0);
        expect(await terminal.ended).toBe(1);
        expect(terminal.screen()).toMatch(/run_\w+ failed after [^\n]*: exited with status 3/);
        expect(terminal.screen()).not.toMatch(LINE);
      } finally {
        terminal.close();
      }
    } finally {
      await own.close();
    }
  });
});

describe.skipIf(!hasScript)("logs -f on a terminal", () => {
  test("the state stands below, and Ctrl-C leaves the run and a clean screen", async () => {
    const { words, open } = gated();
    const { id } = await home.json<{ id: string }>(["run", "--detach", "--", ...words]);
    await on(`exec ${drover(["logs", "-f", id])}`, async (terminal) => {
      await terminal.shows(/^begun\nrunning \d/m);
      terminal.type("\u0003");
      expect(await terminal.ended).toBe(130);
      expect(terminal.screen().replace("^C", "")).toBe("begun");
    });
    await on(`exec ${drover(["logs", "-f", id])}`, async (terminal) => {
      await terminal.shows(LINE);
      open();
      expect(await terminal.ended).toBe(0);
      expect(terminal.screen()).toBe("begun\nover");
    });
    await until(async () => (await home.json<{ status: string }>(["show", id])).status === "succeeded", "it has ended");
  });
});
