/** No guard without a test: each is taken out alone, and some test has to miss it. */
import "./switch.ts";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Guard } from "./find.ts";
import { guardedSources } from "./sources.ts";
import { close, declared, run } from "./suite.ts";
import { without } from "./switch.ts";

const src = new URL("../../src/", import.meta.url);
/** Of core only what has states: arithmetic takes long, and misses no guard. */
const OF_STATES = /^(?:run|run-end|step-graph|limit-end|admission|plan|fold-slots)\.test\.ts$/;
/** Of the store what holds on each; its drivers have no guards, and what a property misses is chance. */
const OF_STORE = /^(?!drivers|paging).*\.contract\.ts$|^(?:unlocked|explain)\.test\.ts$/;
const suites = [
  ...readdirSync(new URL("store/", src))
    .filter((name) => OF_STORE.test(name))
    .map((name) => `store/${name}`),
  ...readdirSync(new URL("core/", src))
    .filter((name) => OF_STATES.test(name))
    .map((name) => `core/${name}`),
];

/** Who missed which guard the last time: asked first, so that a run costs about one test for each guard. */
const RECORD = fileURLToPath(new URL("caught.json", import.meta.url));
const record = existsSync(RECORD) ? (JSON.parse(readFileSync(RECORD, "utf8")) as Record<string, string>) : {};
const caught: Record<string, string> = {};

const keyOf = (file: string, { of, text }: Guard): string => `${file}: ${text} | ${of.slice(0, 200)}`;

interface Known {
  readonly seen: ReadonlySet<string>;
  readonly asks: number;
  readonly ms: number;
}

type Declared = (typeof declared)[number];
const known = new Map<Declared, Known>();

/** What a test asks for with all guards in their places, where it has to pass. */
async function knownOf(body: Declared): Promise<Known> {
  const there = known.get(body);
  if (there !== undefined) return there;
  const begun = performance.now();
  const asked = await without(null, Number.POSITIVE_INFINITY, () => run(body)).catch((cause: unknown) => {
    throw new Error(`with all guards in their places: ${body.name}`, { cause });
  });
  const made = { ...asked, ms: performance.now() - begun };
  known.set(body, made);
  return made;
}

async function misses(body: Declared, id: string): Promise<boolean> {
  const { seen, asks } = await knownOf(body);
  if (!seen.has(id)) return false;
  try {
    await without(id, 10_000 + 10 * asks, () => run(body));
    return false;
  } catch {
    return true;
  }
}

/** The first test that misses a guard; null: none does. */
async function whoMisses(key: string, id: string): Promise<Declared | null> {
  const last = declared.find(({ name }) => name === record[key]);
  if (last !== undefined && (await misses(last, id))) return last;
  const askers: [Declared, number][] = [];
  for (const body of declared) {
    const { seen, ms } = await knownOf(body);
    if (seen.has(id)) askers.push([body, ms]);
  }
  askers.sort(([, a], [, b]) => a - b);
  for (const [body] of askers) if (body !== last && (await misses(body, id))) return body;
  return null;
}

const sources = guardedSources();
let looked = 0;
let missing = 0;

beforeAll(async () => {
  // A property that fails has missed the guard; by which smallest case does not matter.
  fc.configureGlobal({ endOnFailure: true });
  for (const suite of suites) await import(/* @vite-ignore */ new URL(suite, src).pathname);
});

afterAll(async () => {
  await close();
  console.log(`${looked} guards, ${missing} without a test`);
  if (process.env["DROVER_GUARDS"] === "record") writeFileSync(RECORD, `${JSON.stringify(caught, null, 2)}\n`);
});

test.each([...sources])(
  "each guard of %s is missed where it is taken out",
  async (file, { guards }) => {
    const unmissed: string[] = [];
    for (const guard of guards) {
      const key = keyOf(file, guard);
      const who = await whoMisses(key, guard.id);
      if (who === null) unmissed.push(`line ${guard.line}: ${guard.text} | ${guard.of}`);
      else caught[key] = who.name;
    }
    looked += guards.length;
    missing += unmissed.length;
    expect(unmissed).toEqual([]);
  },
  1_200_000,
);
