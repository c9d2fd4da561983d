// @ts-check
/**
 * Which lazily loaded modules travel together. Each `import()` would become files of its own, and what two of them share
 * another: a list then read some fifty files, half a millisecond each. Modules that are wanted together are one file.
 */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";

/**
 * A group's name, and what belongs to it: paths below `src/`, or a test of such a path. A module is in the first that fits.
 * What is in none stays a file of its own: that is right for what is large and seldom wanted.
 * @type {readonly (readonly [string, readonly (string | RegExp)[]])[]}
 */
export const groups = [
  // What starts work, works on processes, reads their output or serves, and the schema library: whoever needs one of them
  // soon needs the others, and each further group would cut what it shares with the next one into more files.
  [
    "work",
    [
      /^engine\//,
      /^execution\//,
      "core/loop.ts",
      "core/target.ts",
      "http/server.ts",
      "main/daemon.ts",
      "main/engine.ts",
      "main/files.ts",
      "main/inspect.ts",
      "main/server.ts",
      "ops/daemon/daemon-log.ts",
      "ops/doctor/findings.ts",
      "ops/imports/import-crontab.ts",
      "ops/imports/import-loops.ts",
      "ops/imports/import-systemd.ts",
      "store/integrity.ts",
    ],
  ],
  // Whoever has a config.yaml reads it with every command: YAML, and nothing else of what follows.
  ["settings", ["ops/config/config-file.ts"]],
  // What reads or writes files of definitions: alone in needing YAML, and in need of the schema library.
  [
    "definitions",
    [/^ops\/declared\//, /^ops\/\w+\/(bundle|config|export|import|template|workflow)-/, "ops/loops/edit-loop.ts"],
  ],
  // What does something, or tells of what is seldom asked for: a list needs none of it.
  [
    "acts",
    [
      /^ops\/(?:\w+\/)*(?!index|list-|perform|settings|places|kept|show-(?!service)|upcoming|slot-rows|why-answer|run-token)[\w-]+\.ts$/,
      /^cli\/(complete|help|live|topics|wait)/,
      /^cli\/views\/(data|declared|imports|service|transcript)/,
      "main/start.ts",
    ],
  ],
  // What nearly every command loads, the lists with all their parts among them: one file is read faster than twenty.
  ["command", [/^cli\//, /^core\//, /^main\//, /^ops\//, /^store\/(?!postgres)/, "http/client.ts"]],
];

/** @param {string} path below `src/` @returns {string | undefined} */
const groupOf = (path) =>
  groups.find(([, members]) => members.some((one) => (typeof one === "string" ? one === path : one.test(path))))?.[0];

/** @param {string} path */
const nameIn = (path) => path.replace(/\.ts$/, "").replace(/\W/g, "_");

/**
 * @param {string} root the folder of the checkout
 * @returns {import("esbuild").Plugin}
 */
export function grouping(root) {
  const source = join(root, "src");
  /** @type {Map<string, Set<string>>} */
  const members = new Map();
  return {
    name: "grouping",
    setup(bundle) {
      bundle.onStart(() => members.clear());
      bundle.onResolve({ filter: /^group:/ }, ({ path }) => ({
        path: path.slice("group:".length),
        namespace: "group",
      }));
      bundle.onLoad({ filter: /./, namespace: "group" }, ({ path: group }) => ({
        contents: [...wanted(group)]
          .map((path) => `export * as ${nameIn(path)} from ${JSON.stringify(`./${path}`)};`)
          .join("\n"),
        resolveDir: source,
      }));
      bundle.onLoad({ filter: /\.ts$/ }, ({ path }) => {
        const text = readFileSync(path, "utf8");
        if (!path.startsWith(source) || !text.includes("import(")) return undefined;
        const contents = text.replace(/\bimport\("(\.{1,2}\/[^"]+\.ts)"\)/g, (whole, specifier) => {
          const target = resolve(dirname(path), specifier).slice(source.length + 1);
          const group = groupOf(target);
          if (group === undefined) return whole;
          return `import("group:${group}").then((all) => all.${nameIn(target)})`;
        });
        return { contents, loader: "ts" };
      });
    },
  };

  /** Everything of the group that anybody loads; read from the sources, since a group is loaded before all of them are. @param {string} group */
  function wanted(group) {
    const found = members.get(group) ?? new Set();
    if (found.size > 0) return found;
    members.set(group, found);
    for (const path of lazilyLoaded(source)) if (groupOf(path) === group) found.add(path);
    return found;
  }
}

/** Paths below `src/` that some source loads by `import()`. @param {string} source */
function lazilyLoaded(source) {
  /** @type {Set<string>} */
  const found = new Set();
  for (const path of filesBelow(source))
    for (const [, specifier = ""] of readFileSync(path, "utf8").matchAll(/\bimport\("(\.{1,2}\/[^"]+\.ts)"\)/g))
      found.add(resolve(dirname(path), specifier).slice(source.length + 1));
  return [...found].sort();
}

/** The program's sources, without tests. @param {string} source */
const filesBelow = (source) =>
  readdirSync(source, { recursive: true, encoding: "utf8" })
    .filter((name) => /(?<!\.(?:test|contract))\.ts$/.test(name))
    .map((name) => join(source, name));
