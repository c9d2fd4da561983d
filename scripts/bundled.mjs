// @ts-check
/** Runs a TypeScript file as one bundle on this Node, with the migrations in it: what is measured or simulated is no loader. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { withMigrations } from "./build.mjs";
import { root } from "./install.mjs";

/**
 * @param {string} entry below the root
 * @param {readonly string[]} args
 * @returns {Promise<number>} its exit status
 */
export async function runBundled(entry, args) {
  const name = basename(entry, ".ts");
  // Below node_modules, so that packages are found.
  const folder = mkdtempSync(join(root, "node_modules", `.${name}-`));
  try {
    const outfile = join(folder, `${name}.mjs`);
    await build({
      entryPoints: [join(root, entry)],
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
    const { status } = spawnSync(process.execPath, ["--enable-source-maps", outfile, ...args], {
      cwd: root,
      stdio: "inherit",
    });
    return status ?? 1;
  } finally {
    if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
  }
}
