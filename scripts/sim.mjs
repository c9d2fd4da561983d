/**
 * The simulator, bundled for this Node: `npm run sim -- --seed N --for 30d [--hosts 3] [--loops 10] [--seeds 100]
 * [--store postgres] [--faults off] [--without crash,stall#2] [--plant drop_token] [--trace]`, and `npm run sim:soak [-- --seed N]`.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { withMigrations } from "./build.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
// Below node_modules, so that packages are found.
const folder = mkdtempSync(join(root, "node_modules", ".sim-"));
try {
  const outfile = join(folder, "sim.mjs");
  await build({
    entryPoints: [join(root, "test/sim/cli.ts")],
    outfile,
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    logLevel: "warning",
    plugins: [withMigrations],
  });
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", outfile, ...process.argv.slice(2)], {
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
