// @ts-check
/**
 * `npm run fuzz -- [--seed N] [--for 10m] [PART ...]`: hostile input for every operation, file and request, for as long as
 * is said; each test of test/fuzz/ gets an equal share. A part is a name in there, as in `files`. Without a seed each run
 * has its own; one that fails is printed.
 */
import { spawnSync } from "node:child_process";
import { parseArgs } from "node:util";
import { root } from "./install.mjs";

const { values, positionals } = parseArgs({
  options: { seed: { type: "string" }, for: { type: "string", default: "1m" } },
  allowPositionals: true,
});
const MS = /** @type {const} */ ({ s: 1_000, m: 60_000, h: 3_600_000 });
const [, count, unit] = /^(\d+)([smh])$/.exec(values.for) ?? [];
if (count === undefined || (values.seed !== undefined && !/^-?\d+$/.test(values.seed))) {
  console.error("npm run fuzz -- [--seed N] [--for 30s|10m|1h] [PART ...]");
  process.exit(2);
}
const parts = positionals.length === 0 ? ["operations", "files", "folders", "socket", "program"] : positionals;
const forMs = (Number(count) * MS[/** @type {"s" | "m" | "h"} */ (unit)]) / parts.length;
const { status } = spawnSync(
  process.execPath,
  ["node_modules/vitest/vitest.mjs", "run", "--project", "whole", ...parts.map((part) => `test/fuzz/${part}`)],
  {
    cwd: root,
    stdio: "inherit",
    env: { ...process.env, DROVER_FUZZ_MS: String(Math.round(forMs)), DROVER_FUZZ_SEED: values.seed ?? "" },
  },
);
process.exitCode = status ?? 1;
