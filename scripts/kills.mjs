// @ts-check
/** `npm run kills -- --store sqlite|postgres --count N --seed S`: builds the program and kills it, see `test/fault/ordeal.ts`. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build as bundle } from "esbuild";
import { build } from "./build.mjs";
import { root } from "./install.mjs";

await build();
const folder = mkdtempSync(join(root, "node_modules", ".kills-"));
try {
  const outfile = join(folder, "kills.mjs");
  await bundle({
    entryPoints: [join(root, "test/fault/kills-cli.ts")],
    outfile,
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    logLevel: "warning",
  });
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", outfile, ...process.argv.slice(2)], {
    cwd: root,
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
