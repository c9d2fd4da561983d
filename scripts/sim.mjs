/** `npm run sim -- --seed N --for 30d [--hosts 2] [--loops 10] [--seeds 100] [--store postgres] [--faults off] [--trace]`: the simulator, bundled for this Node. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const migrations = join(root, "src/store/migrations");
const texts = readdirSync(migrations)
  .filter((name) => name.endsWith(".sql"))
  .map((name) => [name, readFileSync(join(migrations, name), "utf8")]);
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
    define: { __DROVER_MIGRATIONS__: JSON.stringify({ texts: Object.fromEntries(texts), checksums: {} }) },
  });
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", outfile, ...process.argv.slice(2)], {
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
