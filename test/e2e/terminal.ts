/** A real terminal for tests: a pseudo terminal of util-linux's `script`, and what stands on its screen. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { until } from "./drover.ts";

/** That of util-linux: `-e` hands the status on, `-c` takes a command. */
export const hasScript = /util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "");

export interface Terminal {
  /** Everything that was written to it, control sequences included. */
  raw(): string;
  /** What stands on it, without the blanks behind; lines that have scrolled away are still there. */
  screen(): string;
  type(text: string): void;
  /** Waits until the screen fits; fails with the screen. */
  shows(what: string | RegExp): Promise<void>;
  readonly ended: Promise<number | null>;
  close(): void;
}

/** Runs a shell line on a terminal of that many columns. */
export function openTerminal(
  line: string,
  {
    env,
    cwd,
    columns = 80,
  }: { readonly env: Readonly<Record<string, string>>; readonly cwd: string; readonly columns?: number },
): Terminal {
  const child: ChildProcess = spawn("script", ["-qec", `stty cols ${columns} rows 30; ${line}`, "/dev/null"], {
    cwd,
    env: { TERM: "xterm", ...env },
  });
  let raw = "";
  child.stdout?.setEncoding("utf8").on("data", (piece: string) => (raw += piece));
  const ended = new Promise<number | null>((done) => child.once("close", done));
  const terminal: Terminal = {
    raw: () => raw,
    screen: () => drawn(raw, columns),
    type: (text) => void child.stdin?.write(text),
    shows: async (what) => {
      const fits = () => (typeof what === "string" ? terminal.screen().includes(what) : what.test(terminal.screen()));
      await until(() => fits() || child.exitCode !== null, `the screen shows ${String(what)}`).catch(
        (error: unknown) => {
          throw new Error(`${String(error)}\n${terminal.screen()}`);
        },
      );
      if (!fits()) throw new Error(`it ended without ${String(what)} on the screen:\n${terminal.screen()}`);
    },
    ended,
    close: () => void child.kill("SIGKILL"),
  };
  return terminal;
}

/** What a terminal shows of a text: the few sequences that drover writes, every other is a fault. */
function drawn(raw: string, columns: number): string {
  const rows: string[][] = [[]];
  let row = 0;
  let column = 0;
  const put = (character: string): void => {
    if (column === columns) {
      row++;
      column = 0;
    }
    (rows[row] ??= [])[column++] = character;
  };
  for (const [token] of raw.matchAll(/\u001b\[[0-9;?]*[A-Za-z]|\u001b.|[\s\S]/gu)) {
    if (token === "\r") column = 0;
    else if (token === "\n") {
      row++;
      rows[row] ??= [];
    } else if (token === "\b") column = Math.max(0, column - 1);
    else if (token === "\u0007") continue;
    else if (!token.startsWith("\u001b")) put(token);
    else if (token.endsWith("m") || /^\u001b\[\?[0-9]+[hl]$/.test(token)) continue;
    else if (token === "\u001b[K") rows[row]?.splice(column);
    else if (/^\u001b\[\d*A$/.test(token)) row = Math.max(0, row - Number(token.slice(2, -1) || 1));
    else if (/^\u001b\[\d*C$/.test(token)) column += Number(token.slice(2, -1) || 1);
    else throw new Error(`the terminal does not know ${JSON.stringify(token)}`);
  }
  return rows
    .map((cells) =>
      Array.from({ length: cells.length }, (_, index) => cells[index] ?? " ")
        .join("")
        .trimEnd(),
    )
    .join("\n")
    .trimEnd();
}
