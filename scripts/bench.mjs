// @ts-check
/**
 * `npm run bench -- NAME [OPTIONS]`: builds the program, then runs `bench/NAME.ts`, bundled for this Node. Without a name it
 * lists what there is. Each bench prints ratios to something measured in the same rounds on the same machine.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build as bundle } from "esbuild";
import { build } from "./build.mjs";
import { root } from "./install.mjs";

/** A bench says what it is in its first lines, and calls its `main` in the last one. @param {string} name */
const textOf = (name) => readFileSync(join(root, "bench", `${name}.ts`), "utf8");
const names = readdirSync(join(root, "bench"))
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.replace(/\.ts$/, ""))
  .filter((name) => /^await main\(\);$/m.test(textOf(name)));

const [name, ...options] = process.argv.slice(2);
if (name === undefined || !names.includes(name)) {
  const about = (/** @type {string} */ one) =>
    (/^\/\*\*?\s*\*?\s*([^]*?)(?:\n \*\n|\*\/)/.exec(textOf(one))?.[1] ?? "").replace(/\s*\n \* ?/g, " ").trim();
  if (name !== undefined) console.error(`there is no bench ${name}`);
  for (const one of names) console.log(`${one}: ${about(one)}`);
  process.exit(name === undefined ? 0 : 2);
}
await build();
const folder = mkdtempSync(join(root, "node_modules", ".bench-"));
try {
  const outfile = join(folder, "bench.mjs");
  await bundle({
    entryPoints: [join(root, "bench", `${name}.ts`)],
    outfile,
    bundle: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "inline",
    logLevel: "warning",
  });
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", outfile, ...options], {
    cwd: root,
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
} finally {
  if (existsSync(folder)) rmSync(folder, { recursive: true, force: true });
}
