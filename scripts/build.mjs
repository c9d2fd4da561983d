// @ts-check
/**
 * Bundles `src/` into `dist/`: one module for each entry of entries.mjs, and chunks that are loaded when a command needs
 * them, so that start-up stays near that of bare Node.
 *
 *   node scripts/build.mjs [--outdir DIR] [--build-id ID]
 *
 * An entry whose source does not exist is left out and named; one that exists and does not build ends the script with 1.
 */
import { createHash } from "node:crypto";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { grouping } from "./chunks.mjs";
import { toCommonJs } from "./commonjs.mjs";
import { entries } from "./entries.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/**
 * Loaded at run time, never bundled: the drivers are native code or wanted only with a PostgreSQL store, and `pg-native`
 * is a package that `pg` asks for and that we do not have.
 */
const external = ["better-sqlite3", "pg", "pg-native"];

/** CommonJS packages inside an ES module still call `require` for Node's own modules. */
const banner =
  'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);';

/**
 * zod carries its messages in some fifty languages, half of its size; we speak English.
 * @type {import("esbuild").Plugin}
 */
const onlyEnglish = {
  name: "only-english",
  setup(bundle) {
    bundle.onLoad({ filter: /[\\/]zod[\\/]v4[\\/]locales[\\/]index\.js$/ }, () => ({
      contents: 'export { default as en } from "./en.js";',
    }));
  },
};

/**
 * Puts data files where the sources look for them, so that the bundle reads no folder beside it. A `define` would be loaded by
 * the entry itself.
 * @param {string} name of the plugin
 * @param {RegExp} filter of the source that declares it
 * @param {string} constant
 * @param {() => unknown} read
 * @returns {import("esbuild").Plugin}
 */
const carrying = (name, filter, constant, read) => ({
  name,
  setup(bundle) {
    bundle.onLoad({ filter }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      const declared = new RegExp(`^declare const ${constant}.*$`, "m");
      const contents = text.replace(declared, () => `const ${constant} = ${JSON.stringify(read())};`);
      if (contents === text) throw new Error(`${path} no longer declares ${constant}`);
      return { contents, loader: "ts" };
    });
  },
});

/** @type {import("esbuild").Plugin} */
export const withMigrations = carrying(
  "with-migrations",
  /[\\/]store[\\/]migrate\.ts$/,
  "__DROVER_MIGRATIONS__",
  readMigrations,
);

/** @type {import("esbuild").Plugin} */
const withTemplates = carrying(
  "with-templates",
  /[\\/]workflows[\\/]template-sources\.ts$/,
  "__DROVER_TEMPLATES__",
  readTemplates,
);

/**
 * What `drover` runs first: a CommonJS file of some lines, because that is the only kind that costs nothing over a bare start
 * of Node. An ES module costs 3 ms more, the composition root with what it imports another 3, on top of 45; and prompts and
 * scripts ask for the version all day.
 * @param {string} version
 */
const starter = (version) => `#!/usr/bin/env node
"use strict";
const [, , word, more] = process.argv;
const daemon = word === "up" && process.argv.includes("--foreground");
if (more === undefined && (word === "--version" || word === "-V")) say(${JSON.stringify(`drover ${version}\n`)});
else if (daemon) import("./daemon.mjs");
else require("./loader.js");
// To make Node's stream costs more than all the rest; it is there for a reader who is slow or gone.
function say(text) {
  try {
    require("node:fs").writeSync(1, text);
  } catch {
    process.stdout.write(text);
  }
}
`;

/** The migrations by file name, and their checksums, both as src/store/migrate.ts would have them. */
function readMigrations() {
  const folder = join(root, "src/store/migrations");
  const names = readdirSync(folder)
    .filter((name) => name.endsWith(".sql"))
    .sort();
  const read = names.map((name) => {
    const text = readFileSync(join(folder, name), "utf8").replaceAll("\r\n", "\n").trim();
    return { name, text, checksum: createHash("sha256").update(text).digest("hex") };
  });
  return {
    texts: Object.fromEntries(read.map(({ name, text }) => [name, text])),
    checksums: Object.fromEntries(read.map(({ name, checksum }) => [name, checksum])),
  };
}

/** The built-in templates by name. */
function readTemplates() {
  const folder = join(root, "src/ops/workflows/templates");
  const names = readdirSync(folder).sort();
  return Object.fromEntries(
    names.map((name) => [name.replace(/\.yaml$/, ""), readFileSync(join(folder, name), "utf8")]),
  );
}

/**
 * The same sources give the same id, on every machine: it is how a command and a daemon tell whether they are one build.
 * @param {readonly string[]} files
 */
function digestOf(files) {
  const hash = createHash("sha256");
  for (const file of files)
    hash
      .update(file)
      .update("\0")
      .update(readFileSync(join(root, file)))
      .update("\0");
  return hash.digest("hex").slice(0, 12);
}

/** Every file that can change what is built, in a fixed order. */
function sources() {
  const inSource = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(ts|sql|yaml)$/.test(name) && !/\.(test|contract)\.ts$/.test(name))
    .map((name) => join("src", name))
    .sort();
  return [
    ...inSource,
    "package.json",
    "package-lock.json",
    "scripts/build.mjs",
    "scripts/chunks.mjs",
    "scripts/commonjs.mjs",
    "scripts/entries.mjs",
  ];
}

/**
 * The licences of what is bundled, which their authors ask to be passed on.
 * @param {readonly string[]} inputs paths relative to the root
 */
function licencesOf(inputs) {
  const folders = new Set();
  for (const input of inputs) {
    const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) folders.add(found[1]);
  }
  const parts = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8"));
    const file = readdirSync(join(root, folder)).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? readFileSync(join(root, folder, file), "utf8").trim() : "";
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
  return parts.join(`\n${"-".repeat(80)}\n\n`);
}

/**
 * Builds into `outdir`. The old content is replaced only when the new one is whole.
 * @param {{ outdir?: string, buildId?: string }} [options] `buildId` overrides the digest of the sources: tests that
 *   replace a daemon by a newer build give the same sources another id
 * @returns {Promise<{ outdir: string, buildId: string, version: string, missing: string[] }>}
 */
export async function build(options = {}) {
  const { build: bundle } = await import("esbuild");
  const outdir = resolve(root, options.outdir ?? "dist");
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const buildId = options.buildId ?? digestOf(sources());
  const present = entries.filter(({ source }) => existsSync(join(root, source)));
  if (present.length === 0) throw new Error(`nothing to build: no source of ${entries.length} entries exists`);
  const missing = entries.filter((entry) => !present.includes(entry)).map(({ source }) => source);
  const fresh = `${outdir}.new-${process.pid}`;
  const old = `${outdir}.old-${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  try {
    /**
     * @param {readonly { source: string, output: string }[]} of
     * @param {boolean} splits into chunks that are loaded when they are needed; else one file for each entry, with all that it
     *   may ever load
     */
    const bundleEntries = (of, splits) =>
      bundle({
        absWorkingDir: root,
        entryPoints: of.map(({ source, output }) => ({ in: source, out: output })),
        outdir: fresh,
        ...(splits ? {} : { outExtension: { ".js": ".mjs" }, banner: { js: banner } }),
        bundle: true,
        splitting: splits,
        format: "esm",
        platform: "node",
        target: "node20",
        // Beside the entries, so that each finds the threads' files where it is itself.
        chunkNames: "[name]-[hash]",
        external,
        plugins: [onlyEnglish, withMigrations, withTemplates, ...(splits ? [grouping(root)] : [])],
        define: {
          __DROVER_VERSION__: JSON.stringify(version),
          __DROVER_BUILD__: JSON.stringify(buildId),
        },
        // Names and lines stay as they are written, so that a stack trace of the bundle can be read without its map.
        minifySyntax: true,
        sourcemap: "external",
        legalComments: "none",
        metafile: true,
        logLevel: "warning",
      });
    // Threads apart from the program: what they shared with it would be files that every command has to read.
    const main = "src/main.ts";
    const programs = present.filter(({ isProgram }) => isProgram);
    const bundled = [
      // Each by itself: what loads the program's files cannot be in files that it loads.
      ...(await Promise.all(programs.map((entry) => bundleEntries([entry], true)))),
      await bundleEntries(
        present.filter((entry) => !programs.includes(entry)),
        false,
      ),
      // A daemon outlives its installation's files: an upgrade replaces them while it runs, and what it would load then is gone.
      await bundleEntries(
        present.filter(({ source }) => source === main).map(({ source }) => ({ source, output: "daemon" })),
        false,
      ),
    ];
    const split = readdirSync(fresh).filter((one) => one.endsWith(".js"));
    await Promise.all(split.map((name) => toCommonJs(join(fresh, name))));
    writeFileSync(
      join(fresh, "LICENSES.txt"),
      licencesOf(bundled.flatMap(({ metafile }) => Object.keys(metafile.inputs))),
    );
    if (present.some(({ source }) => source === main)) {
      writeFileSync(join(fresh, "package.json"), `${JSON.stringify({ type: "commonjs" })}\n`);
      writeFileSync(join(fresh, "drover.js"), starter(version));
      chmodSync(join(fresh, "drover.js"), 0o755);
    }
    if (existsSync(outdir)) renameSync(outdir, old);
    renameSync(fresh, outdir);
  } finally {
    rmSync(fresh, { recursive: true, force: true });
    rmSync(old, { recursive: true, force: true });
  }
  return { outdir, buildId, version, missing };
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { outdir: { type: "string" }, "build-id": { type: "string" } } });
  const startedAt = performance.now();
  try {
    const built = await build({
      ...(values.outdir === undefined ? {} : { outdir: values.outdir }),
      ...(values["build-id"] === undefined ? {} : { buildId: values["build-id"] }),
    });
    for (const source of built.missing) console.warn(`left out: ${source} does not exist`);
    const shown = relative(process.cwd(), built.outdir) || basename(built.outdir);
    console.log(
      `drover ${built.version} (${built.buildId}) in ${shown}, ${Math.round(performance.now() - startedAt)} ms`,
    );
  } catch (error) {
    // esbuild has printed where the sources are at fault; anything else has not been said yet.
    if (!(error instanceof Error && "errors" in error)) console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  }
}
