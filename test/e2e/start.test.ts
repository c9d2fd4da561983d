/** What a command reads before it works: what a list does not need costs each prompt and each script, all day. */
import { chownSync, existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
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
      expect(files.length).toBeLessThanOrEqual(15);
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

describe("what earlier commands compiled", () => {
  const LOOKS = ["loop", "ls"];
  const fileOf = () => join(home.folder, "home/compiled");
  /** Changes both copies of what is kept, or one alone. */
  const write = (copies: readonly [Buffer, Buffer]) => writeFileSync(fileOf(), Buffer.concat(copies));
  const once = (): Buffer => {
    const bytes = readFileSync(fileOf());
    return bytes.subarray(0, bytes.length / 2);
  };
  /** `every` as a list says it, turned into a word that no source has. */
  const changed = (bytes: Buffer): Buffer => {
    const text = bytes.toString("latin1").replaceAll("every ", "evary ");
    expect(text).toContain("evary ");
    return Buffer.from(text, "latin1");
  };

  beforeEach(async () => {
    await home.run(["loop", "add", "one", "--every", "1h", "--", "true"]);
    await home.run(LOOKS);
  });

  test("is what the next ones run, and nobody else can read or write it", async () => {
    expect(statSync(fileOf()).mode & 0o777).toBe(0o600);
    const other = changed(once());
    write([other, other]);
    expect((await home.run(LOOKS)).out).toContain("evary 1h");
  });

  test("is not run where a part of it is damaged, cut off, of another build or another user's", async () => {
    const [good, other] = [once(), changed(once())];
    for (const copies of [
      [good, other],
      [other, good],
      [other, other.subarray(0, -8)],
      [other, Buffer.alloc(0)],
      [Buffer.alloc(0), Buffer.alloc(0)],
    ] as const) {
      write(copies);
      expect(await home.run(LOOKS)).toMatchObject({ status: 0, err: "", out: expect.stringContaining("every 1h") });
      // And what is kept is whole again.
      expect(once().equals(readFileSync(fileOf()).subarray(once().length))).toBe(true);
      expect(once().toString("latin1")).toContain("every ");
    }
    const older = Buffer.from(other.toString("latin1").replace(/^\{"key":"\w/, '{"key":"X'), "latin1");
    write([older, older]);
    expect((await home.run(LOOKS)).out).toContain("every 1h");
    if (process.getuid?.() !== 0) return;
    write([other, other]);
    chownSync(fileOf(), 12_345, 12_345);
    expect((await home.run(LOOKS)).out).toContain("every 1h");
  });

  test("grows with each kind of command up to a bound, and by no name that somebody gave", async () => {
    const commands = () =>
      (JSON.parse(once().toString("utf8", 0, once().indexOf("\n"))) as { commands: string[] }).commands;
    expect(commands()).toEqual(["loop add", "loop ls"]);
    await home.run(["loop", "show", "one"]);
    await home.run(["loop", "show", "one", "--json"]);
    expect(commands()).toEqual(["loop add", "loop ls", "loop show"]);
    for (let i = 0; i < 34; i++) await home.run([`no-command-${i}`]);
    expect(commands().length).toBe(32);
    expect((await home.run(LOOKS)).out).toContain("every 1h");
  });

  test("is not kept where nothing else of ours is, and its place being taken harms nothing", async () => {
    await home.run(LOOKS, { env: { DROVER_HOME: join(home.folder, "none") } });
    expect(existsSync(join(home.folder, "none"))).toBe(false);
    const taken = join(home.folder, "taken");
    mkdirSync(join(taken, "compiled"), { recursive: true });
    writeFileSync(join(taken, "host"), "a".repeat(32));
    expect(await home.run(LOOKS, { env: { DROVER_HOME: taken } })).toMatchObject({ status: 0, err: "" });
  });
});
