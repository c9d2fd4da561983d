/** Every operation with every kind of input, one after the other on a store that fills: as JSON and as words of a command line. */
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { operations } from "../../src/ops/index.ts";
import type { AnyOperation } from "../../src/ops/operation.ts";
import { chanceOf } from "../sim/chance.ts";
import { type Arena, FILES, openArena } from "./arena.ts";
import { budget, testLimitMs } from "./budget.ts";
import { type Input, inputFor, wordsFor } from "./grammar.ts";
import { openWatchdog, type Watchdog } from "./watchdog.ts";

/** Inputs of one walk, each a number that decides all that is chosen. */
const walk = fc.array(fc.noShrink(fc.nat()), { minLength: 20, maxLength: 150, size: "max" });

let dog: Watchdog;
const all: AnyOperation[] = [];
beforeAll(async () => {
  dog = openWatchdog();
  for (const entry of operations) all.push((await entry.load()).operation);
});
afterAll(() => dog.close());

function named(name: string): AnyOperation {
  const found = all.find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no operation ${name}`);
  return found;
}

/** What is tried less often: it looks at all of this host. */
const RARE = new Set([
  "doctor",
  "status",
  "up",
  "down",
  "daemon.install",
  "daemon.uninstall",
  "agent.ls",
  "completion",
]);
/** What is there first, so that the others find something. */
const first = ({ folder }: Arena): readonly (readonly [operation: string, input: Input])[] => [
  ["loop.add", { name: "a", cron: "30 2 * * *", tz: "Europe/Berlin", command: ["echo", "x"], cwd: "/" }],
  ["loop.add", { name: "b", every: "1m", shell: "exit 3", cwd: "/", attempts: 2, label: ["night"] }],
  ["run", { command: ["echo", "x"], cwd: "/", env: { A: "1" } }],
  ["run", { command: ["sleep", "1"], cwd: "/" }],
  ["account.add", { provider: "claude", name: "work" }],
  ["limit.set", { resource: "account:claude:work", limit: 1 }],
  ["apply", { path: [join(folder, "drover.yaml")] }],
  ["import.crontab", { files: [{ name: "crontab", base64: Buffer.from(FILES["crontab"] ?? "").toString("base64") }] }],
  ["import.systemd", { units: [join(folder, "x.timer")] }],
  ["export", { file: join(folder, "bundle"), history: true }],
  ["import.bundle", { file: join(folder, "bundle") }],
];

test(
  "takes anything, and refuses what is wrong with a code and without a trace",
  async () => {
    const count = { tried: 0, taken: 0 };
    const takers = new Set<string>();
    await fc.assert(
      fc.asyncProperty(walk, async (moves) => {
        const arena = await openArena(dog);
        try {
          for (const [name, input] of first(arena))
            if ((await arena.tries(named(name), input)) === null) throw arena.refusal ?? new Error(name);
          await arena.works(2_000);
          for (const move of moves) {
            const chance = chanceOf(String(move));
            if (chance.hit(0.05)) {
              await arena.works(chance.pick([1, 1_000, 60_000, 600_000]));
              continue;
            }
            const operation = chance.pick(all);
            if (RARE.has(operation.name) && chance.hit(0.8)) continue;
            const input = inputFor(operation, arena.examples.get(operation.name) ?? [], chance, arena.pool);
            if (chance.hit(0.25)) {
              const detach = operation.cli.waits?.unless === undefined ? [] : ["--detach"];
              await arena.triesWords(operation, [...detach, ...wordsFor(operation, input, chance)]);
              continue;
            }
            count.tried++;
            if ((await arena.tries(operation, input)) === null) continue;
            count.taken++;
            takers.add(operation.name);
          }
        } finally {
          await arena.close();
        }
      }),
      budget(10),
    );
    // Doors that let nothing through, or everything, would make this prove little.
    expect(count.taken / count.tried).toBeGreaterThan(0.25);
    expect(count.taken / count.tried).toBeLessThan(0.8);
    expect(takers.size).toBeGreaterThan(all.length / 2);
  },
  testLimitMs,
);
