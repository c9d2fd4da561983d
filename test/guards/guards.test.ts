/** No guard without a test: each is taken out alone, and some test has to miss it. */
import "./switch.ts";
import { readdirSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { guardedSources } from "./sources.ts";
import { close, declared, run } from "./suite.ts";
import { without } from "./switch.ts";

const sources = guardedSources();
const src = new URL("../../src/", import.meta.url);
/** Of core only what has states: arithmetic takes long, and misses no guard. */
const OF_STATES = /^(?:run|run-end|loop|limit-end|admission|plan|fold-slots)\.test\.ts$/;
const suites = [
  ...readdirSync(new URL("store/", src))
    .filter((name) => name.endsWith(".contract.ts") || name === "unlocked.test.ts")
    .map((name) => `store/${name}`),
  ...readdirSync(new URL("core/", src))
    .filter((name) => OF_STATES.test(name))
    .map((name) => `core/${name}`),
];

interface Known {
  readonly body: (typeof declared)[number];
  readonly seen: ReadonlySet<string>;
  readonly asks: number;
  readonly ms: number;
}

const known: Known[] = [];

beforeAll(async () => {
  // A property that fails has missed the guard; by which smallest case does not matter.
  fc.configureGlobal({ endOnFailure: true });
  for (const suite of suites) await import(/* @vite-ignore */ new URL(suite, src).pathname);
  for (const body of declared) {
    const begun = performance.now();
    const asked = await without(null, Number.POSITIVE_INFINITY, () => run(body));
    known.push({ body, ...asked, ms: performance.now() - begun });
  }
  known.sort((a, b) => a.ms - b.ms);
}, 300_000);

afterAll(close);

test.each([...sources])(
  "each guard of %s is missed where it is taken out",
  async (_, { guards }) => {
    const unmissed: string[] = [];
    for (const { id, line, of, text } of guards) {
      const askers = known.filter(({ seen }) => seen.has(id));
      let missed = false;
      for (const one of askers) {
        const { body, asks } = one;
        try {
          await without(id, 10_000 + 10 * asks, () => run(body));
        } catch {
          missed = true;
          // What has missed one guard of a statement often misses its neighbour too.
          known.splice(0, 0, ...known.splice(known.indexOf(one), 1));
          break;
        }
      }
      if (!missed) unmissed.push(`${id} line ${line} (${askers.length} tests): ${text} | ${of}`);
    }
    expect(unmissed).toEqual([]);
  },
  600_000,
);
