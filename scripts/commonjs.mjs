// @ts-check
/**
 * Turns the bundled program's chunks from ES modules, which alone can be split, into CommonJS. Node's loader of ES modules
 * costs a command 10 ms on top of 45, half of them for streams that it makes of `node:fs` before anybody asks.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { transform } from "esbuild";

/** Stands for the module's address until it is known whether the module wants it. */
const ADDRESS = "__ownAddress";

/**
 * Rewrites one bundled file in place, with its map beside it. Chunks are wanted at once where another asks for them, modules
 * of Node's own when they are first used: `crypto` is 12 ms, and in every chunk is somebody who may need it.
 * @param {string} file
 */
export async function toCommonJs(file) {
  const map = readFileSync(`${file}.map`).toString("base64");
  const { code, map: newMap } = await transform(
    `${readFileSync(file, "utf8")}\n//# sourceMappingURL=data:application/json;base64,${map}`,
    {
      format: "cjs",
      platform: "node",
      target: "node20",
      supported: { "dynamic-import": false },
      define: { "import.meta.url": ADDRESS },
      sourcemap: "external",
      legalComments: "none",
      logLevel: "warning",
    },
  );
  writeFileSync(file, ownAddress(onFirstUse(asTheyAre(code))));
  writeFileSync(`${file}.map`, newMap);
}

/**
 * Our chunks hand each other the very object of their exports. It would be copied, name by name, for whoever cannot tell such
 * a module from one that was written as CommonJS.
 * @param {string} code
 */
const asTheyAre = (code) =>
  code
    .replace(/^module\.exports = __toCommonJS\((\w+)\);$/m, "module.exports = $1;")
    .replace(/__toESM\(require\(("\.\/[\w-]+\.js")\)\)/g, "require($1)");

/** A `require` of the file's own place needs no address. @param {string} code */
function ownAddress(code) {
  const asked = code.replace(/\(0, import_node_module\d*(?:\(\))?\.createRequire\)\(__ownAddress\)/g, "require");
  if (!asked.includes(ADDRESS)) return asked;
  // On the first line, so that the map still fits.
  return `const ${ADDRESS} = require("node:url").pathToFileURL(__filename).href; ${asked}`;
}

/**
 * Loads Node's own modules when they are first used; each stays on its line. Node keeps what it has loaded.
 * @param {string} code
 */
function onFirstUse(code) {
  /** @type {string[]} */
  const names = [];
  const lazy = code.replace(/^var (import_\w+) = require\("(node:[\w/]+)"\);$/gm, (_whole, name, module) => {
    names.push(name);
    return `function ${name}() { return require("${module}"); }`;
  });
  if (names.length === 0) return code;
  const any = names.join("|");
  const called = lazy
    // `new f().Name` would make an object of f.
    .replace(new RegExp(`\\bnew (${any})\\.(\\w+)`, "g"), "new ($1().$2)")
    .replace(new RegExp(`\\b(${any})\\.`, "g"), "$1().");
  const left = new RegExp(`(?<!function )\\b(?:${names.join("|")})\\b(?!\\(\\))`).exec(called);
  if (left) throw new Error(`${left[0]} is used in a way that scripts/commonjs.mjs does not know`);
  return called;
}
