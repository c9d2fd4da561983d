import { createHash } from "node:crypto";
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const cache = join(root, "node_modules", ".cache", "drover-test");

/**
 * Bundles a worker's entry for this Node and answers its file. The same text is written once, under the name of its
 * digest, so that test files that run side by side share it.
 * @param entry path relative to the checkout
 */
export async function buildWorker(entry: string): Promise<URL> {
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: [entry],
    bundle: true,
    write: false,
    format: "esm",
    platform: "node",
    target: "node20",
    external: ["better-sqlite3", "pg", "pg-native"],
    sourcemap: "inline",
    logLevel: "silent",
  });
  const text = outputFiles[0]?.text ?? "";
  const file = join(cache, `${createHash("sha256").update(text).digest("hex").slice(0, 16)}.mjs`);
  if (!existsSync(file)) {
    mkdirSync(cache, { recursive: true });
    const fresh = `${file}.${process.pid}`;
    writeFileSync(fresh, text);
    renameSync(fresh, file);
  }
  return pathToFileURL(file);
}
