/** A daemon of the built program for a bench: started in a home of its own, asked over its socket. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { callDaemon } from "../src/http/client.ts";
import { openHome } from "./homes.ts";

export interface BenchDaemon {
  readonly pid: number;
  /** An operation by its name, on a connection of its own, as a command has it. */
  call(name: string, input: unknown): Promise<unknown>;
  /** What each attempt so far has printed, in no order. */
  outputs(): readonly string[];
  /** Waits until so many attempts have printed something. Errors: when that takes longer than a minute. */
  printed(count: number): Promise<readonly string[]>;
  down(): void;
}

const PATIENCE_MS = 60_000;
const LOOK_MS = 20;

/** @param settings lines of its `config.yaml` @param store the address of its store; null for the file that it has by itself */
export function startDaemon(folder: string, settings: string, store: string | null = null): BenchDaemon {
  const home = openHome(folder, resolve("dist/drover.js"), store);
  writeFileSync(join(folder, "home/config.yaml"), settings);
  home.drover(["up"]);
  const { daemon } = JSON.parse(home.drover(["status", "--json"]).out) as {
    daemon: { pid: number; version: string };
  };
  const socket = readFileSync(join(folder, "home/daemon.socket"), "utf8").trim();
  const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
  const runs = join(folder, "home/runs");
  const outputs = (): readonly string[] =>
    readdirSync(runs, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && entry.name.startsWith("att_"))
      .map(({ name }) => {
        try {
          return readFileSync(join(runs, name, "out"), "utf8");
        } catch {
          return ""; // its command has not begun
        }
      })
      .filter((text) => text !== "");
  return {
    pid: daemon.pid,
    call: (name, input) => callDaemon({ socket, version, runToken: null, insideRun: false }, name, input),
    outputs,
    async printed(count) {
      const endsAt = performance.now() + PATIENCE_MS;
      for (;;) {
        const texts = outputs();
        if (texts.length >= count) return texts;
        if (performance.now() > endsAt) throw new Error(`only ${texts.length} of ${count} attempts printed anything`);
        await new Promise((done) => setTimeout(done, LOOK_MS));
      }
    },
    down: () => void home.drover(["down", "--stop-runs"]),
  };
}
