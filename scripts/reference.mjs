// @ts-check
/**
 * Writes `docs/reference/` from the operations, the settings and the errors of the program itself, and `test/golden/`, the
 * contract of each command with scripts. What changed in that contract is said, a break as one.
 *
 *   node scripts/reference.mjs [--check]
 *
 * With `--check` nothing is written: it ends with 1, and says what differs, when a page or a contract is stale.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "./install.mjs";

const golden = join(root, "test/golden");
const head = "<!-- Written by scripts/reference.mjs: change the operation, not this page. -->\n\n";

/** The parts of the program that describe themselves, bundled so that any Node can load them. */
async function load() {
  const { build } = await import("esbuild");
  const outdir = mkdtempSync(join(root, ".cache-reference-"));
  try {
    await build({
      absWorkingDir: root,
      stdin: {
        contents: `
          export { operations } from "./src/ops/index.ts";
          export { flagOf } from "./src/ops/fields.ts";
          export { readSettings } from "./src/ops/settings.ts";
          export { placesOf } from "./src/ops/places.ts";
          export { EXIT_MEANINGS, exitsOf } from "./src/cli/exits.ts";
          export { changesBetween, contractOf, sentenceOf, textOfContract } from "./test/contract.ts";
          export { findingKinds } from "./src/ops/finding-codes.ts";
          export { endedBy, failureClasses, runStatuses, attemptStatuses, stepStatuses } from "./src/core/run.ts";
          export { loopStatuses } from "./src/core/loop-states.ts";`,
        resolveDir: root,
        loader: "ts",
      },
      outfile: join(outdir, "reference.mjs"),
      bundle: true,
      format: "esm",
      platform: "node",
      target: "node20",
      banner: { js: 'import { createRequire as __c } from "node:module"; const require = __c(import.meta.url);' },
      external: ["better-sqlite3", "pg", "pg-native"],
      logLevel: "error",
    });
    return await import(pathToFileURL(join(outdir, "reference.mjs")).href);
  } finally {
    rmSync(outdir, { recursive: true, force: true });
  }
}

/** @param {string} text */
const cell = (text) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

/** @param {string} name */
const commandOf = (name) => name.replaceAll(".", " ");

const WHERE = {
  read: "reads the store, daemon or not",
  write: "in the daemon; without one the command writes itself",
  act: "in the daemon",
  local: "in the command's own process",
};

/** A shape as one line of text. @param {any} shape @returns {string} */
function shapeText(shape) {
  const nullable = shape.nullable ? " or null" : "";
  if (shape.enum) return `${shape.enum.map((/** @type {string} */ one) => `\`${one}\``).join(", ")}${nullable}`;
  if (shape.type === "array")
    return `list of ${shape.items?.type === "object" ? "objects (below)" : shapeText(shape.items ?? {})}${nullable}`;
  if (shape.type === "object") return `object (below)${nullable}`;
  if (shape.format === "date-time") return `instant${nullable}`;
  return `${shape.type ?? "any JSON"}${nullable}`;
}

/** Rows of an answer's keys, inner ones below their outer one. @param {any} shape @param {string} prefix @returns {string[]} */
function shapeRows(shape, prefix = "") {
  return Object.entries(shape.properties ?? {}).flatMap(([key, of]) => {
    const name = prefix + key;
    const optional = shape.required?.includes(key) ? "" : " (may be absent)";
    const inner = of.type === "array" ? of.items : of;
    return [
      `| \`${name}\` | ${shapeText(of)}${optional} |`,
      ...shapeRows(inner ?? {}, `${name}${of.type === "array" ? "[]" : ""}.`),
    ];
  });
}

/** @param {any} program */
async function commands({ operations, flagOf, exitsOf }) {
  const lines = [
    head,
    "# Commands\n\nEvery command takes `--json` and `--help`. What it may end with is said in [words and statuses](words.md). Over the daemon's socket the same operations are `POST /api/v1/ops/<name>` with the JSON input as body.\n",
  ];
  for (const entry of operations) {
    const { operation } = await entry.load();
    const { input, output, cli, where } = operation;
    const positionals = cli.positionals ?? [];
    lines.push(
      `\n## ${entry.hidden ? operation.name : `drover ${commandOf(operation.name)}`}\n\n${operation.summary}. Runs ${WHERE[/** @type {keyof typeof WHERE} */ (where)]}${operation.start ? "; one is started where none runs" : ""}.\n`,
    );
    if (entry.hidden) lines.push("\nPart of the daemon's own machinery: an operation, not a command.\n");
    const later = Object.entries(input).filter(([, field]) => field.later);
    const fields = Object.entries(input).filter(([, field]) => !field.later);
    if (fields.length > 0) {
      lines.push("\n| on the command line | in JSON | meaning | usually |\n| --- | --- | --- | --- |\n");
      for (const [key, field] of fields) {
        const word =
          key === cli.rest
            ? "`-- COMMAND ...`"
            : positionals.includes(key)
              ? `\`${field.placeholder}\``
              : `${field.short === null ? "" : `\`-${field.short}\`, `}\`--${flagOf(key, field)}${field.placeholder === null ? "" : ` ${field.placeholder}`}\``;
        const type = cli.own?.includes(key)
          ? ""
          : ` (${field.schema.enum ? "one of the choices" : [field.schema.type].flat().join(" or ")})`;
        lines.push(
          `| ${cell(word)} | ${cli.own?.includes(key) ? "" : `\`${key}\``}${type} | ${cell(field.about)}${field.required ? "; required" : ""} | ${cell(field.fallback ?? "")} |\n`,
        );
      }
    }
    if (later.length > 0)
      lines.push(
        `\nNot available yet, and refused by name: ${later.map(([key, field]) => `\`--${flagOf(key, field)}\``).join(", ")}.\n`,
      );
    if (cli.notes) lines.push(`\n${cli.notes.join("\n")}\n`);
    if (!entry.hidden) lines.push(`\nEnds with ${exitsOf(operation).join(", ")}.\n`);
    const rows = shapeRows(output);
    if (rows.length > 0)
      lines.push(
        `\n<details><summary>Answer</summary>\n\n| key | value |\n| --- | --- |\n${rows.join("\n")}\n\n</details>\n`,
      );
    if (cli.examples)
      lines.push(
        `\n\`\`\`sh\n${cli.examples.map((/** @type {string} */ one) => `drover ${one}`).join("\n")}\n\`\`\`\n`,
      );
  }
  return lines.join("");
}

/** @param {any} program */
async function settings({ readSettings, placesOf }) {
  const places = placesOf({ HOME: "/home/you" });
  const { settings: usual } = await readSettings({}, places, null);
  const rows = usual.all.map(
    (/** @type {{ key: string, text: string }} */ { key, text }) =>
      `| \`${key}\` | \`${key === "caps.agents" ? "4 (2 on fewer than 4 cores)" : text.replace("/home/you", "~")}\` |`,
  );
  return `${head}# Settings

\`config.yaml\` lies in the folder that \`drover config path\` names. Durations are written as \`90s\` or \`1h30m\`, sizes as \`10MB\` or \`1GiB\`. An unknown setting is a warning, a wrong value is refused with its line; \`drover config check\` lists all.
\`DROVER_HOME\` moves everything under one folder; \`DROVER_STORE\` wins over \`store\`.

| setting | usually |
| --- | --- |
${rows.join("\n")}
`;
}

/** @param {any} program */
function words({ EXIT_MEANINGS, endedBy, failureClasses, runStatuses, attemptStatuses, stepStatuses, loopStatuses }) {
  const list = (/** @type {readonly string[]} */ all) => all.map((one) => `\`${one}\``).join(", ");
  return `${head}# Words and statuses

| exit status | means |
| --- | --- |
${EXIT_MEANINGS.map((/** @type {[number, string]} */ [status, meaning]) => `| ${status} | ${meaning} |`).join("\n")}

Loops are ${list(loopStatuses)}. Runs are ${list(runStatuses)}. Steps are the same, and ${list(stepStatuses.filter((/** @type {string} */ one) => !runStatuses.includes(one)))}. Attempts are ${list(attemptStatuses)}.

Classes of failure: ${list(failureClasses)}.

What ended an attempt (\`endedBy\`): ${list(endedBy)}. \`self\` is its own end, \`exit_timer\` an agent that had said its result and was ended because it did not exit, \`stop\` a daemon that went down, \`fence\` another one that took it over.
`;
}

/** @param {any} program */
function findings({ findingKinds }) {
  const rows = Object.entries(findingKinds).map(
    ([code, { check, level, says, mend, fixable }]) =>
      `| \`${code}\` | ${check} | ${level} | ${cell(says)} | ${cell(mend)} | ${fixable ? "yes" : ""} |`,
  );
  return `${head}# Findings of \`drover doctor\`

Each finding has a stable code, the id or path that it is about, and the command that mends it. Problems and warnings end \`doctor\` with 1; notes do not. \`--fix\` lists what it would do and asks (\`--yes\` answers, \`--dry-run\` only lists); it mends those that are marked, where it is proved that nothing is lost, and looks again. The limits that are named are settings.

| code | check | level | means | what mends it | \`--fix\` |
| --- | --- | --- | --- | --- | --- |
${rows.join("\n")}
`;
}

/**
 * What became of the contract since it was written down: its files, and a sentence for each change.
 * @param {any} program
 */
async function contracts({ operations, contractOf, textOfContract, changesBetween, sentenceOf }) {
  /** @type {Record<string, string>} */
  const files = {};
  /** @type {string[]} */
  const sentences = [];
  const kept = existsSync(golden) ? readdirSync(golden) : [];
  for (const entry of operations) {
    const contract = contractOf((await entry.load()).operation, entry.hidden === true);
    const name = `${entry.name}.json`;
    files[name] = textOfContract(contract);
    if (kept.includes(name))
      sentences.push(...changesBetween(JSON.parse(readFileSync(join(golden, name), "utf8")), contract).map(sentenceOf));
    else sentences.push(`\`${entry.name.replaceAll(".", " ")}\` is new`);
  }
  const lost = kept.filter((name) => !Object.hasOwn(files, name));
  for (const name of lost)
    sentences.push(`\`${name.replace(/\.json$/, "").replaceAll(".", " ")}\` is gone: a contract break`);
  return { files, sentences, lost };
}

const program = await load();
const check = process.argv.includes("--check");
const { files, sentences, lost } = await contracts(program);
for (const sentence of sentences) (check ? console.error : console.log)(sentence);

/** Every file that is written, by its path from the root. @type {Record<string, string>} */
const wanted = {
  "docs/reference/commands.md": await commands(program),
  "docs/reference/settings.md": await settings(program),
  "docs/reference/words.md": words(program),
  "docs/reference/findings.md": findings(program),
  ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`test/golden/${name}`, text])),
};
const stale = lost.map((name) => `test/golden/${name}`);
if (!check) for (const name of lost) rmSync(join(golden, name));
for (const [path, text] of Object.entries(wanted)) {
  const file = join(root, path);
  if (existsSync(file) && readFileSync(file, "utf8") === text) continue;
  if (check) stale.push(path);
  else {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
}
if (check && stale.length > 0) {
  console.error(`stale: ${stale.join(", ")}. \`node scripts/reference.mjs\` writes them.`);
  process.exitCode = 1;
}
