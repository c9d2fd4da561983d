/** What a command reads before it works: what a list does not need costs each prompt and each script, all day. */
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sqliteLibrary } from "../../src/store/sqlite-adapters.ts";
import { type Home, openHome, PROGRAM } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

/** Tells at the end what has been loaded; on standard error, which a list leaves empty. */
const TELLS = `process.on("exit", () => {
  const builtin = process.moduleLoadList.filter((one) => one.startsWith("NativeModule ")).map((one) => one.slice(13));
  require("node:fs").writeSync(2, "loaded " + JSON.stringify({ files: Object.keys(require.cache), builtin }) + "\\n");
});`;

interface Loaded {
  /** The program's own files. */
  readonly files: readonly string[];
  /** Node's own modules, its internal ones too. */
  readonly builtin: readonly string[];
}

/** What Node loads to run a text. */
async function loadedBy(args: readonly string[], program = PROGRAM): Promise<Loaded> {
  const tells = join(home.folder, "tells.cjs");
  writeFileSync(tells, TELLS);
  const { status, err } = await home.run(args, { env: { NODE_OPTIONS: `--require=${tells}` }, program });
  const [, said = ""] = /^loaded (.*)\n/m.exec(err) ?? [];
  expect({ args, status, err: err.replace(`loaded ${said}\n`, "") }).toEqual({ args, status: 0, err: "" });
  const { files, builtin } = JSON.parse(said) as Loaded;
  return { files: files.filter((file) => file.startsWith(dirname(PROGRAM))), builtin };
}

/** The packages whose text stands in these files. */
const packagesIn = (files: readonly string[]): string[] => {
  const sources = files
    .filter((file) => basename(file) !== "drover.js")
    .flatMap(
      (file) => (JSON.parse(readFileSync(`${file}.map`, "utf8")) as { readonly sources: readonly string[] }).sources,
    );
  return [...new Set(sources.flatMap((source) => /node_modules\/([^/]+)/.exec(source)?.[1] ?? []))].sort();
};

/** Of Node's own modules: digests, sockets, streams, threads, its loader of ES modules. Each is milliseconds, all are 30. */
const HEAVY =
  /^(?:internal\/)?(?:crypto|fs\/promises|http|modules\/esm\/(?:load|translators)|net|perf_hooks|readline|stream|worker)/;

/** What a list may read of the program. Each hundred kilobytes are 3 ms that everybody waits, at each prompt. */
const LIST_BYTES = 700_000;

describe("before it works, a command reads what it needs", () => {
  test("a list, a thing and the status load neither YAML nor the schema library, in few files", async () => {
    const driver = join(home.folder, "driver.cjs");
    const library = sqliteLibrary();
    const place = library === "better-sqlite3" ? createRequire(PROGRAM).resolve(library) : library;
    writeFileSync(driver, `require(${JSON.stringify(place)});`);
    const { builtin: usual } = await loadedBy([], driver);
    await home.run(["loop", "add", "one", "--every", "1h", "--", "true"]);
    for (const args of [
      ["loop", "ls", "--json"],
      ["runs", "--json"],
      ["status", "--json"],
      ["account", "ls", "--json"],
      ["loop", "show", "one", "--json"],
      ["loop", "slots", "one", "--json"],
    ]) {
      const { files, builtin } = await loadedBy(args);
      expect({ args, packages: packagesIn(files) }).toEqual({ args, packages: [] });
      expect(files.length).toBeLessThanOrEqual(14);
      expect(files.reduce((sum, file) => sum + statSync(file).size, 0)).toBeLessThanOrEqual(LIST_BYTES);
      // The others ask the daemon, through a socket that a digest names.
      const isList = args.some((word) => ["ls", "runs", "slots"].includes(word));
      const more = builtin.filter((one) => isList && !usual.includes(one) && HEAVY.test(one));
      expect({ args, more }).toEqual({ args, more: [] });
    }
  });

  test("files of definitions load YAML, which shows that the test would see it", async () => {
    writeFileSync(join(home.folder, "drover.yaml"), "version: 1\n");
    const { files } = await loadedBy(["apply", join(home.folder, "drover.yaml"), "--dry-run", "--json"]);
    expect(packagesIn(files)).toContain("yaml");
  });
});
