/** A daemon of the built program for a bench: started in a home of its own, asked over its socket. */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
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
  /** What each attempt so far has written to its standard error. */
  errors(): readonly string[];
  /** Begins to watch how long its event loop is held. */
  watch(): void;
  /** The 99th percentile of that since `watch`, in ms. */
  held(): Promise<number>;
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
  const read = (stream: "out" | "err"): readonly string[] =>
    readdirSync(runs, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && entry.name.startsWith("att_"))
      .map(({ name }) => {
        try {
          return readFileSync(join(runs, name, stream), "utf8");
        } catch {
          return ""; // its command has not begun
        }
      })
      .filter((text) => text !== "");
  const outputs = () => read("out");
  const patiently = async <T>(look: () => T | null, missing: () => string): Promise<T> => {
    const endsAt = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = look();
      if (found !== null) return found;
      if (performance.now() > endsAt) throw new Error(missing());
      await new Promise((done) => setTimeout(done, LOOK_MS));
    }
  };
  return {
    pid: daemon.pid,
    call: (name, input) => callDaemon({ socket, version, runToken: null, insideRun: false }, name, input),
    outputs,
    printed: (count) =>
      patiently(
        () => {
          const texts = outputs();
          return texts.length >= count ? texts : null;
        },
        () => `only ${outputs().length} of ${count} attempts printed anything`,
      ),
    errors: () => read("err"),
    watch: () => process.kill(daemon.pid, "SIGUSR2"),
    held() {
      process.kill(daemon.pid, "SIGUSR2");
      const file = join(folder, "held");
      return patiently(
        () => (existsSync(file) ? Number(readFileSync(file, "utf8")) : null),
        () => "the daemon did not say how long its event loop was held",
      );
    },
    down: () => void home.drover(["down", "--stop-runs"]),
  };
}
