// @ts-check
/**
 * `npm run bench -- NAME [OPTIONS]`: builds the program, then runs a bench of `bench/`, bundled for this Node. NAME is the
 * name of its file, a bar that it is about (`p1`), or `all`; without a name it lists what there is. Each bench prints ratios
 * to something measured in the same rounds on the same machine. With `--built` the program of `dist/` is taken as it is.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "./build.mjs";
import { runBundled } from "./bundled.mjs";
import { root } from "./install.mjs";

/** A bench says what it is in its first lines, its bars first, and calls its `main` in the last one. @param {string} name */
const textOf = (name) => readFileSync(join(root, "bench", `${name}.ts`), "utf8");
const benches = readdirSync(join(root, "bench"))
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.replace(/\.ts$/, ""))
  .filter((name) => /^await main\(\);$/m.test(textOf(name)))
  .map((name) => {
    const about = (/^\/\*\*?\s*\*?\s*([^]*?)(?:\n \*\n|\*\/)/.exec(textOf(name))?.[1] ?? "")
      .replace(/\s*\n \* ?/g, " ")
      .trim();
    const bars = (/^((?:P\d+\w?(?:, )?)+):/.exec(about)?.[1] ?? "").toLowerCase().split(", ");
    return { name, about, bars };
  });

const [word, ...given] = process.argv.slice(2);
const options = given.filter((one) => one !== "--built");
const wanted = benches.filter(
  ({ name, bars }) => word === "all" || word === name || bars.includes((word ?? "").toLowerCase()),
);
if (wanted.length === 0) {
  if (word !== undefined) console.error(`there is no bench ${word}`);
  for (const { name, about } of benches) console.log(`${name}: ${about}`);
  process.exit(word === undefined ? 0 : 2);
}
if (options.length === given.length) await build();
for (const { name, bars } of wanted) {
  // A bar names its cases too; a file's own name, or all, names every one.
  const only = word !== name && word !== "all" && bars.length > 1 ? ["--only", word ?? ""] : [];
  if (wanted.length > 1) console.log(`\n== ${name}`);
  const status = await runBundled(`bench/${name}.ts`, [...only, ...options]);
  if (status !== 0) process.exitCode = status;
}
