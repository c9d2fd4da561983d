// @ts-check
/**
 * Writes `docs/reference/`, the truth table in the guide to workflows, and the list of man pages in `package.json`, from the operations, the settings and the errors of the program itself, and `test/golden/`, the
 * contract of each command with scripts. What changed in that contract is said, a break as one.
 *
 *   node scripts/reference.mjs [--check]
 *
 * With `--check` nothing is written: it ends with 1, and says what differs, when a page or a contract is stale.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { findErrors } from "./errors.mjs";
import { root } from "./install.mjs";
import { manFiles } from "./man.mjs";
import { loadProgram } from "./program.mjs";

const golden = join(root, "test/golden");
/** A page for each command. */
const COMMANDS = "docs/reference/commands";
const head = "<!-- Written by scripts/reference.mjs: change the operation, not this page. -->\n\n";

/** @param {string} text */
const cell = (text) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

/** @param {string} name */
const fileOf = (name) => `${name.replaceAll(".", "-")}.md`;

/** The index of all commands, in the groups of the help. @param {any} program */
function index({ grouped, operations, commandOf }) {
  const hidden = operations.filter((/** @type {any} */ entry) => entry.hidden === true);
  return `${head}# Commands

Every command takes \`--json\` and \`--help\`. What it may end with is said in [words and statuses](words.md), what it may refuse in [errors](errors.md). Over the daemon's socket the same operations are \`POST /api/v1/ops/<name>\` with the JSON input as body.
${grouped(operations)
  .map(
    (/** @type {[string, any[]]} */ [title, entries]) =>
      `\n## ${title}\n\n| command | does |\n| --- | --- |\n${entries.map(({ name, summary }) => `| [\`drover ${commandOf(name)}\`](commands/${fileOf(name)}) | ${cell(summary)} |`).join("\n")}\n`,
  )
  .join("")}
${hidden.length === 0 ? "" : `Operations of the daemon's own machinery, which are no commands: ${hidden.map((/** @type {any} */ { name }) => `\`${name}\``).join(", ")}.\n`}`;
}

/** The page of one command. @param {any} entry @param {any} program */
async function command(entry, { pageOf, keysOf, flagOf }) {
  const { operation } = await entry.load();
  const { input, cli } = operation;
  const page = pageOf(operation);
  /** @type {readonly any[]} */
  const fields = Object.entries(input);
  const keyOf = (/** @type {string} */ word) => {
    const flag = /--([a-z-]+)/.exec(word)?.[1];
    const found = fields.find(([key, field]) =>
      flag === undefined
        ? cli.positionals?.includes(key) && (field.placeholder ?? key.toUpperCase()) === word
        : !cli.positionals?.includes(key) && key !== cli.rest && flagOf(key, field) === flag,
    );
    const [key, field] = found ?? [cli.rest, input[cli.rest]];
    if (field === undefined || cli.own?.includes(key)) return "";
    const type = field.schema.enum ? "one of the choices" : [field.schema.type].flat().join(" or ");
    return `\`${key}\` (${type})`;
  };
  const table = (/** @type {readonly any[]} */ entries) =>
    `| on the command line | in JSON | meaning | usually |\n| --- | --- | --- | --- |\n${entries
      .map(
        ({ word, about, usual, many }) =>
          `| \`${cell(word)}\` | ${keyOf(word)} | ${cell(about)}${many ? "; may be repeated" : ""} | ${cell(usual ?? "")} |`,
      )
      .join("\n")}\n`;
  const answer = keysOf(operation.output);
  return [
    head,
    `# drover ${page.command}\n\n${page.summary}. ${page.runs}\n\n\`\`\`\n${page.usage}\n\`\`\`\n`,
    ...(page.notes.length === 0 ? [] : [`\n${page.notes.join("\n")}\n`]),
    ...(page.words.length === 0 ? [] : [`\n## Words\n\n${table(page.words)}`]),
    ...page.sections
      .filter((/** @type {any} */ { title }) => title !== "Flags of every command")
      .map((/** @type {any} */ { title, entries }) => `\n## ${title}\n\n${table(entries)}`),
    ...(page.excludes.length === 0
      ? []
      : [
          `\nOnly one of each may be given: ${page.excludes.map((/** @type {string[]} */ pair) => pair.map((one) => `\`${one}\``).join(" or ")).join("; ")}.\n`,
        ]),
    ...(page.later.length === 0
      ? []
      : [
          `\nNot available yet, and refused by name: ${page.later.map((/** @type {string} */ one) => `\`${one}\``).join(", ")}.\n`,
        ]),
    ...(page.examples.length === 0 ? [] : [`\n## Examples\n\n\`\`\`sh\n${page.examples.join("\n")}\n\`\`\`\n`]),
    `\n## Ends with\n\n| status | means |\n| --- | --- |\n${page.exits.map((/** @type {[number, string]} */ [status, meaning]) => `| ${status} | ${meaning} |`).join("\n")}\n`,
    ...(answer.length === 0
      ? []
      : [
          `\n## Answer with --json\n\n\`?\` stands behind what may be absent.\n\n| key | value |\n| --- | --- |\n${answer.map((/** @type {any} */ { path, text }) => `| \`${path}\` | ${cell(text)} |`).join("\n")}\n`,
        ]),
  ].join("");
}

/** Every error by its code. @param {any} program */
function errors({ EXIT }) {
  const { codes, puzzles } = findErrors();
  if (puzzles.length > 0) throw new Error(`scripts/errors.mjs does not understand:\n${puzzles.join("\n")}`);
  const rows = [...codes]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([code, kinds]) => {
      const sayings = [...kinds.values()].flat();
      const { message, hint } = sayings.find((one) => one.message !== "" && one.hint !== null) ??
        sayings.find((one) => one.message !== "") ?? { message: "", hint: null };
      const statuses = [...kinds.keys()].map((kind) => `${EXIT[kind]} ${kind}`).join(", ");
      return `| \`${code}\` | ${statuses} | ${cell(message)} | ${cell(hint ?? "")} |`;
    });
  return `${head}# Errors

An error is one line on standard error; with \`--json\` it is the document \`{"error": {"code", "message", "hint", "path"}}\` there, and over the socket the body of the answer. Codes stay as they are; messages and hints get better. A code is shown with one of its messages, \`...\` where something is put in.

| code | exit status | says, for example | what to do |
| --- | --- | --- | --- |
${rows.join("\n")}
`;
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

const GUIDE = "docs/guide/workflows.md";
/** The guide to workflows, with the truth table of the program in it. @param {any} program */
function truthTable({ endTable, skippedBy }) {
  const rows = endTable.map(
    (/** @type {any} */ { status, reason, when, says, saysAllTheSame, failsRun }) =>
      `| \`${status}${reason === null ? "" : `(${reason})`}\` | ${when} | ${becomes(says)} | ${becomes(saysAllTheSame)} | ${failsRun ? "yes" : "no"} |`,
  );
  function becomes(/** @type {string} */ verdict) {
    const reason = skippedBy[verdict];
    return reason === null ? "can start" : `is \`skipped(${reason})\``;
  }
  const table = `| a step ends as | when | what needs it | with \`continueOnFailure\` | the run fails |\n| --- | --- | --- | --- | --- |\n${rows.join("\n")}\n`;
  const [before = "", after = ""] = readFileSync(join(root, GUIDE), "utf8").split(
    /(?<=<!-- truth table[^>]*-->\n\n)[^]*(?=\n<!-- end -->)/,
  );
  return before + table + after;
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

/** `package.json` with every man page: npm links those that it names. @param {any} program */
async function packageJson(program) {
  const contents = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return `${JSON.stringify({ ...contents, man: (await manFiles(program)).map((file) => `man/${file}`) }, null, 2)}\n`;
}

const program = await loadProgram();
const check = process.argv.includes("--check");
const { files, sentences, lost } = await contracts(program);
for (const sentence of sentences) (check ? console.error : console.log)(sentence);

/** Every file that is written, by its path from the root. @type {Record<string, string>} */
const wanted = {
  "docs/reference/commands.md": index(program),
  "docs/reference/errors.md": errors(program),
  "docs/reference/settings.md": await settings(program),
  "docs/reference/words.md": words(program),
  "docs/reference/findings.md": findings(program),
  "package.json": await packageJson(program),
  [GUIDE]: truthTable(program),
  "docs/reference/drover.schema.json": `${JSON.stringify(program.declarationSchema(), null, 2)}\n`,
  "docs/reference/workflow.schema.json": `${JSON.stringify(program.workflowSchema(), null, 2)}\n`,
  "docs/reference/config.schema.json": `${JSON.stringify(program.configSchema(), null, 2)}\n`,
  ...Object.fromEntries(
    await Promise.all(
      program.operations
        .filter((/** @type {any} */ entry) => entry.hidden !== true)
        .map(async (/** @type {any} */ entry) => [`${COMMANDS}/${fileOf(entry.name)}`, await command(entry, program)]),
    ),
  ),
  ...Object.fromEntries(Object.entries(files).map(([name, text]) => [`test/golden/${name}`, text])),
};
const gone = existsSync(join(root, COMMANDS))
  ? readdirSync(join(root, COMMANDS))
      .map((name) => `${COMMANDS}/${name}`)
      .filter((path) => !Object.hasOwn(wanted, path))
  : [];
const stale = [...gone, ...lost.map((name) => `test/golden/${name}`)];
if (!check) for (const path of stale.splice(0)) rmSync(join(root, path));
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
