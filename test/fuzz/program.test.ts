/** The built program, started with any words, as a script would: each ends in time as its contract says, and says what is wrong in words for people. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { exitsOf } from "../../src/cli/exits.ts";
import { operations } from "../../src/ops/index.ts";
import type { AnyOperation } from "../../src/ops/operation.ts";
import { openHome, withJson } from "../e2e/drover.ts";
import { chanceOf } from "../sim/chance.ts";
import { FILES, LIBRARY } from "./arena.ts";
import { budget, testLimitMs } from "./budget.ts";
import { examplesOf, type Input, inputFor, type Pool, wordsFor } from "./grammar.ts";

/** What starts processes, or looks for more than this home: real ones are not put at the mercy of chance. */
const APART = /^(run|retry|loop\.run|up|down|daemon\..*|doctor|restore|account\.login|cancel)$/;
const SPAWNS = 8;

const first = [
  ["loop", "add", "a", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--cwd", "/", "--", "echo", "x"],
  ["loop", "add", "b", "--every", "1m", "--attempts", "2", "--label", "night", "--cwd", "/", "--shell", "exit 3"],
  ["account", "add", "claude", "work"],
];

test(
  "takes any words, and ends as its contract says, without a trace of a fault",
  async () => {
    const all: AnyOperation[] = [];
    for (const entry of operations)
      if (entry.hidden !== true && !APART.test(entry.name)) all.push((await entry.load()).operation);
    const count = { spawned: 0, fine: 0 };
    await fc.assert(
      fc.asyncProperty(fc.noShrink(fc.nat()), async (seed) => {
        const chance = chanceOf(String(seed));
        const home = openHome({ prefix: "drover-words-" });
        try {
          for (const [name, text] of Object.entries(FILES)) writeFileSync(join(home.folder, name), text);
          for (const words of first) expect(await home.run(words)).toMatchObject({ status: 0 });
          const pool: Pool = {
            texts: [],
            accepted: () => [],
            namesOf: (kind) =>
              kind === "loop" || kind === "thing"
                ? ["a", "b"]
                : kind === "account"
                  ? ["claude:work"]
                  : Object.keys(FILES).map((name) => join(home.folder, name)),
          };
          for (let spawns = 0; spawns < SPAWNS; spawns++) {
            const operation = chance.pick(all);
            const input = inputFor(operation, examplesOf(operation), chance, pool);
            const { cli, follow } = operation;
            // What is followed has no end of its own.
            const bounded =
              follow === null || typeof input !== "object" || input === null
                ? input
                : Object.fromEntries(
                    Object.entries(input as Input).filter(([key]) => key !== (cli.follows ?? "follow")),
                  );
            const plain = [...operation.name.split("."), ...wordsFor(operation, bounded, chance)];
            const asksJson = chance.hit(0.5);
            const words = asksJson ? withJson(plain) : plain;
            const what = `drover ${words.map((word) => JSON.stringify(word.slice(0, 300))).join(" ")}`;
            const { status, signal, out, err } = await home.run(words);
            count.spawned++;
            if (status === 0) count.fine++;
            const said = `${what}: ${status ?? signal}\n${err.slice(0, 2_000)}`;
            expect(exitsOf(operation), said).toContain(status);
            expect(status, said).not.toBe(70);
            expect(/^\s+at .*:\d+/m.test(err) || LIBRARY.test(err), said).toBe(false);
            expect(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(err), said).toBe(false);
            if (status !== 0 && cli.exit === undefined) expect(err, said).not.toBe("");
            if (status === 0 && asksJson && !words.includes("--help"))
              expect(() => JSON.parse(out), `${said}\n${out.slice(0, 500)}`).not.toThrow();
          }
        } finally {
          await home.close();
        }
      }),
      budget(1),
    );
    expect(count.fine / count.spawned).toBeLessThan(0.95);
  },
  testLimitMs,
);
