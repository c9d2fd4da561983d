/** Files that people and other programs write, broken in every way that a seed finds: read as far as they make sense, or refused with their place. */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { placesOf } from "../../src/ops/places.ts";
import { readSettings } from "../../src/ops/config/settings.ts";
import type { Json } from "../../src/ops/fields.ts";
import { findEntry } from "../../src/ops/index.ts";
import type { AnyOperation } from "../../src/ops/operation.ts";
import { type Chance, chanceOf } from "../sim/chance.ts";
import { type Arena, FILES, openArena } from "./arena.ts";
import { budget, testLimitMs } from "./budget.ts";
import { hostileText, mutateJson, mutateText } from "./grammar.ts";
import { openWatchdog, type Watchdog } from "./watchdog.ts";

let dog: Watchdog;
let arena: Arena;
let bundle: string;
const operation = new Map<string, AnyOperation>();
beforeAll(async () => {
  dog = openWatchdog();
  arena = await openArena(dog);
  for (const name of [
    "loop.add",
    "run",
    "apply",
    "export",
    "import.bundle",
    "import.crontab",
    "import.systemd",
    "workflow.validate",
    "workflow.graph",
  ]) {
    const entry = findEntry(name);
    if (entry !== undefined) operation.set(name, (await entry.load()).operation);
  }
  await takes("apply", { path: [join(arena.folder, "drover.yaml")] });
  await takes("workflow.graph", { file: join(arena.folder, "workflow.yaml") });
  await takes("run", { command: ["echo", "x"], cwd: "/" });
  await arena.works(600_000);
  await takes("export", { file: join(arena.folder, "bundle"), history: true });
  bundle = readFileSync(join(arena.folder, "bundle"), "utf8");
});
afterAll(async () => {
  await arena.close();
  await dog.close();
});

const tries = (name: string, input: Json): Promise<unknown> => arena.tries(operation.get(name) as AnyOperation, input);
async function takes(name: string, input: Json): Promise<void> {
  if ((await tries(name, input)) === null) throw arena.refusal ?? new Error(name);
}

const YAML = [
  ...[
    "&a",
    "*a",
    "<<: *a",
    "!!js/function x",
    "!!binary AAA=",
    "? [a, b]\n: c",
    "---\n",
    "...\n",
    "%YAML 9.9\n",
    "\t",
    "- ",
    "{",
    "[",
    "|",
    ">-",
    "'",
  ],
  ...[
    "\ufeff",
    "\u2028",
    "\u0000",
    "~",
    "null",
    "0o17",
    ".inf",
    "1e400",
    "2026-02-30",
    "yes",
    "a: &x [*x]",
    "x: ",
    "  ",
    "\n\n",
    "#",
    ": ",
  ],
  `${"[".repeat(5_000)}`,
  `a: &a [x]\n${Array.from({ length: 30 }, (_, at) => `b${at}: &b${at} [*${at === 0 ? "a" : `b${at - 1}`}, *${at === 0 ? "a" : `b${at - 1}`}]`).join("\n")}\n`,
];

/** Text of a file with a few faults; now and then bytes that are no text at all. */
function broken(text: string, pieces: readonly string[], chance: Chance): Uint8Array {
  let made = text;
  for (let faults = chance.int(1, 4); faults > 0; faults--) {
    const at = chance.int(0, made.length);
    made = chance.hit(0.5) ? mutateText(made, chance) : made.slice(0, at) + chance.pick(pieces) + made.slice(at);
  }
  const bytes = Buffer.from(made);
  if (chance.hit(0.1) && bytes.length > 0) bytes[chance.int(0, bytes.length - 1)] = chance.int(128, 255);
  return chance.hit(0.03) ? chance.bytes(chance.int(0, 500)) : bytes;
}

/** Null where a value got too deep for the writer of JSON: it has no bound of its own. */
function mutated(line: string, chance: Chance): string | null {
  const value = mutateJson(JSON.parse(line) as Json, chance, arena.pool);
  try {
    return JSON.stringify(value);
  } catch (error) {
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** A bundle whose lines were changed by somebody who also counts them and signs them anew. */
function brokenBundle(chance: Chance): Uint8Array {
  const lines = bundle.trimEnd().split("\n").slice(0, -1);
  const trailer = JSON.parse(bundle.trimEnd().split("\n").at(-1) ?? "") as { [key: string]: Json };
  for (let faults = chance.int(1, 3); faults > 0; faults--) {
    const at = chance.int(0, lines.length - 1);
    const line = lines[at] ?? "";
    lines[at] = (chance.hit(0.8) ? mutated(line, chance) : null) ?? `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
    if (chance.hit(0.1)) lines.splice(at, 1);
    if (lines.length === 0 || chance.hit(0.1)) lines.splice(at, 0, line);
    if (lines.some((one) => !one.startsWith("{"))) break;
  }
  const content = lines.map((line) => `${line}\n`).join("");
  const said = Object.fromEntries(
    Object.entries(trailer).map(([key, value]) => [
      key,
      typeof value === "number"
        ? lines.length
        : /^[0-9a-f]{64}$/.test(String(value))
          ? createHash("sha256").update(content).digest("hex")
          : value,
    ]),
  );
  return Buffer.from(`${content}${JSON.stringify(said)}\n`);
}

const UNITS = [
  "[Timer]\n",
  "[",
  "OnCalendar=*-*-* 25:00\n",
  "OnCalendar=Mon..Sun..Tue\n",
  "OnCalendar=*:0/0\n",
  "OnBootSec=1y 99999999999w\n",
  "\\\n",
  "%",
  "%h",
  "%i",
  "$A",
  "${A",
  '"',
  "'",
  "\\x",
  "\\x00",
  ";\n",
  "Unit=../x.service\n",
  "ExecStart=\n",
  "ExecStart=-@+!!/bin/true x\n",
];
const CRON = [
  "* * * * *",
  "*/0 ",
  "1-0 ",
  "@every 1h ",
  "@reboot ",
  "99 ",
  "%",
  "\\%",
  "A=B\n",
  "SHELL=\n",
  "CRON_TZ=Mars/x\n",
  "TZ=\n",
  "jan-dec ",
  "L ",
  "#",
  "~ ",
  "\r",
  "* * * * *\n",
  "0-59/7,3 ",
];

const EXPRESSIONS = [
  "${{",
  "}}",
  "${{ steps.fix.output }}",
  "${{ inputs.__proto__ }}",
  " || ",
  ".map(a, a)",
  ".matches('(a+)+$')",
  "always()",
  "steps[",
  "needs: [each, agree]\n",
  "if: false\n",
];

test(
  "drover.yaml, workflows, crontabs, units, bundles and configurations: read or refused, and nothing is kept of what was refused",
  async () => {
    const count = { tried: 0, taken: 0 };
    const places = placesOf(process.env);
    const put = (name: string, bytes: Uint8Array): string => {
      writeFileSync(join(arena.folder, name), bytes);
      return join(arena.folder, name);
    };
    await fc.assert(
      fc.asyncProperty(fc.noShrink(fc.nat()), async (seed) => {
        const chance = chanceOf(String(seed));
        const dryRun = chance.hit(0.5);
        const answer = await chance.pick([
          () =>
            tries("apply", {
              path: [put("drover.yaml", broken(FILES["drover.yaml"] ?? "", YAML, chance))],
              dryRun,
              prune: chance.hit(0.3),
              adopt: chance.hit(0.3),
            }),
          () =>
            tries(chance.pick(["workflow.validate", "workflow.graph"]), {
              file: put("workflow.yaml", broken(FILES["workflow.yaml"] ?? "", [...YAML, ...EXPRESSIONS], chance)),
              ...(chance.hit(0.1) ? { mermaid: true } : {}),
            }),
          () =>
            tries("import.bundle", {
              file: put(
                "bundle",
                chance.hit(0.7) ? brokenBundle(chance) : broken(bundle, ["\n", "{}\n", "\u0000"], chance),
              ),
              dryRun,
              replace: chance.hit(0.3),
              skip: chance.hit(0.3),
            }),
          () =>
            tries("import.crontab", {
              files: [
                { name: "x", base64: Buffer.from(broken(FILES["crontab"] ?? "", CRON, chance)).toString("base64") },
              ],
              dryRun,
              skipInvalid: chance.hit(0.5),
              prefix: `p${chance.int(0, 9_999)}-`,
            }),
          () => {
            put("x.timer", broken(FILES["x.timer"] ?? "", UNITS, chance));
            put("x.service", broken(FILES["x.service"] ?? "", UNITS, chance));
            return tries("import.systemd", {
              units: [join(arena.folder, "x.timer")],
              dryRun,
              skipInvalid: chance.hit(0.5),
              prefix: `p${chance.int(0, 9_999)}-`,
            });
          },
          async () => {
            const text = Buffer.from(
              broken(
                "store: sqlite:/tmp/x\nlimits:\n  leaseMs: 60s\n  minFreeBytes: 1GiB\ncaps: { commands: 3 }\n",
                YAML,
                chance,
              ),
            ).toString();
            dog.trying(`config.yaml ${JSON.stringify(text)}`);
            const { problems } = await readSettings({}, places, text);
            dog.resting();
            for (const { line, message } of problems) {
              expect(line ?? 1).toBeGreaterThan(0);
              expect(message).not.toBe("");
            }
            return problems.length === 0 ? {} : null;
          },
        ])();
        count.tried++;
        if (answer !== null) count.taken++;
      }),
      budget(150),
    );
    expect(count.taken / count.tried).toBeGreaterThan(0.05);
    expect(count.taken / count.tried).toBeLessThan(0.9);
  },
  testLimitMs,
);

test(
  "cursors of every kind that no page has given",
  async () => {
    const lists = await Promise.all(
      ["runs", "loop.ls", "loop.slots", "events", "worktree.ls"].map(
        async (name) => (await findEntry(name)?.load())?.operation,
      ),
    );
    const keys = fc.array(
      fc.oneof(
        fc.string(),
        fc.integer(),
        fc.double(),
        fc.constant(null),
        fc.boolean(),
        fc.constantFrom(...arena.pool.texts),
      ),
      { maxLength: 6 },
    );
    const cursor = fc.oneof(
      keys.map((key) => Buffer.from(JSON.stringify(key)).toString("base64url")),
      fc.json().map((text) => Buffer.from(text).toString("base64url")),
      fc.noShrink(fc.nat()).map((seed) => hostileText(chanceOf(String(seed)))),
      fc.string(),
    );
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...lists), cursor, async (list, given) => {
        if (list === undefined) throw new Error("there is such a list");
        await arena.tries(list, { cursor: given, ...(list.name === "loop.slots" ? { loop: "declared" } : {}) });
      }),
      budget(150),
    );
  },
  testLimitMs,
);
