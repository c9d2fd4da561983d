/** What a command reads before it works: what a list does not need costs each prompt and each script, all day. */
import { writeFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

/** Tells of each file that is loaded as a module; on standard error, which a list leaves empty. */
const HOOKS = `export async function load(url, context, next) {
  if (url.startsWith("file:")) (await import("node:fs")).writeSync(2, "loaded " + url + "\\n");
  return next(url, context);
}`;

/** The program's files that a command loads. */
async function loadedBy(args: readonly string[]): Promise<string[]> {
  const hooks = join(home.folder, "hooks.mjs");
  const start = join(home.folder, "start.mjs");
  writeFileSync(hooks, HOOKS);
  writeFileSync(
    start,
    `import { register } from "node:module"; register(${JSON.stringify(pathToFileURL(hooks).href)});`,
  );
  const { status, err } = await home.run(args, { env: { NODE_OPTIONS: `--import=${pathToFileURL(start).href}` } });
  expect({ args, status, err: err.replaceAll(/^loaded .*\n/gm, "") }).toEqual({ args, status: 0, err: "" });
  return [...err.matchAll(/^loaded (.*)$/gm)]
    .map(([, url = ""]) => fileURLToPath(url))
    .filter((file) => file.includes("/dist/"));
}

/** The packages whose text stands in these files. */
const packagesIn = (files: readonly string[]): string[] =>
  [
    ...new Set(
      files.flatMap((file) =>
        [...readFileSync(file, "utf8").matchAll(/^\s*\/\/ node_modules\/([^/\n]+)/gm)].map(([, name = ""]) => name),
      ),
    ),
  ].sort();

describe("before it works, a command reads what it needs", () => {
  test("a list, a thing and the status load neither YAML nor the schema library, in few files", async () => {
    await home.run(["loop", "add", "one", "--every", "1h", "--", "true"]);
    for (const args of [
      ["loop", "ls", "--json"],
      ["runs", "--json"],
      ["status", "--json"],
      ["account", "ls", "--json"],
      ["loop", "show", "one", "--json"],
      ["loop", "slots", "one", "--json"],
    ]) {
      const files = await loadedBy(args);
      expect({ args, packages: packagesIn(files) }).toEqual({ args, packages: ["picocolors"] });
      expect(files.length).toBeLessThanOrEqual(13);
    }
  });

  test("files of definitions load YAML, which shows that the test would see it", async () => {
    writeFileSync(join(home.folder, "drover.yaml"), "version: 1\n");
    const files = await loadedBy(["apply", join(home.folder, "drover.yaml"), "--dry-run", "--json"]);
    expect(packagesIn(files)).toContain("yaml");
  });
});
