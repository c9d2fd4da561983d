// @ts-check
/**
 * Writes the man pages: drover.1, one for each noun, and one for each command, from the operations themselves.
 *
 *   node scripts/man.mjs [FOLDER]     `man/` of the checkout, where `npm pack` takes them
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { root } from "./install.mjs";
import { loadProgram } from "./program.mjs";

/** Text as roff takes it: nothing in it is a request, an escape or a typographer's quote. @param {string} text */
const plain = (text) =>
  text
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll("~", "\\(ti")
    .replaceAll("^", "\\(ha")
    .replaceAll("`", "\\(ga")
    .replaceAll("'", "\\(aq")
    .replaceAll('"', "\\(dq")
    .replace(/^\./gm, "\\&.");

/** Running text, in which what stands between back quotes is bold. @param {string} text */
const prose = (text) =>
  text.replace(/`([^`]+)`|[^`]+/g, (all, code) => (code === undefined ? plain(all) : `\\fB${plain(code)}\\fR`));

/** @param {string} word @param {string} about */
const item = (word, about) => `.TP\n\\fB${plain(word)}\\fR\n${about === "" ? "\\&" : prose(about)}`;

/** @param {readonly string[]} lines */
const verbatim = (lines) => `.nf\n${lines.map((line) => `\\&${plain(line)}`).join("\n")}\n.fi`;

/** @param {string} name @param {string} version */
const title = (name, version) =>
  `.TH "${plain(name.toUpperCase())}" 1 "" "drover ${plain(version)}" "drover"\n.nh\n.ad l`;

/** @param {string} command */
const pageName = (command) => `drover-${command.replaceAll(" ", "-")}`;
/** @param {readonly string[]} names */
const seeAlso = (names) => `.SH SEE ALSO\n${names.map((name) => `\\fB${plain(name)}\\fR(1)`).join(",\n")}`;

/**
 * @param {any} entry @param {any} program @param {string} version
 * @returns {Promise<string>}
 */
async function commandPage(entry, { pageOf, keysOf, operations }, version) {
  const { operation } = await entry.load();
  const page = pageOf(operation);
  const name = pageName(page.command);
  const [noun] = entry.name.split(".");
  const described = (/** @type {any} */ { about, usual, many }) =>
    `${about}${usual === null ? "" : ` (usually ${usual})`}${many ? "; may be repeated" : ""}.`;
  const answer = keysOf(operation.output);
  const width = Math.max(0, ...answer.map((/** @type {any} */ { path }) => path.length));
  const related = operations
    .filter(
      (/** @type {any} */ one) =>
        one !== entry && one.hidden !== true && one.name.includes(".") && one.name.startsWith(`${noun}.`),
    )
    .map((/** @type {any} */ one) => pageName(one.name.replaceAll(".", " ")));
  return [
    title(name, version),
    ".SH NAME",
    `${plain(name)} \\- ${plain(page.summary.charAt(0).toLowerCase() + page.summary.slice(1))}`,
    ".SH SYNOPSIS",
    `\\fBdrover ${plain(page.command)}\\fR${plain(page.usage.slice(`drover ${page.command}`.length))}`,
    ".SH DESCRIPTION",
    prose(`${page.summary}. ${page.runs}`),
    ...(page.notes.length === 0
      ? []
      : [
          ".PP",
          ...page.notes.flatMap((/** @type {string} */ note) =>
            note.startsWith(" ") ? [verbatim([note])] : [prose(note)],
          ),
        ]),
    ...(page.words.length === 0
      ? []
      : [".SH WORDS", ...page.words.map((/** @type {any} */ word) => item(word.word, described(word)))]),
    ".SH FLAGS",
    ...page.sections.flatMap((/** @type {any} */ { title: heading, entries }) => [
      ...(heading === "Flags" ? [] : [`.SS ${plain(heading)}`]),
      ...entries.map((/** @type {any} */ one) => item(one.word, described(one))),
    ]),
    ...page.excludes.map(
      (/** @type {string[]} */ pair) =>
        `.PP\nOnly one of ${pair.map((one) => `\\fB${plain(one)}\\fR`).join(" and ")} may be given.`,
    ),
    ...(page.later.length === 0
      ? []
      : [`.PP\nNot available yet, and refused by name: ${plain(page.later.join(" "))}.`]),
    ...(page.examples.length === 0 ? [] : [".SH EXAMPLES", verbatim(page.examples)]),
    ".SH EXIT STATUS",
    ...page.exits.map((/** @type {[number, string]} */ [status, meaning]) => item(String(status), `${meaning}.`)),
    ...(answer.length === 0
      ? []
      : [
          ".SH ANSWER",
          "Keys of the document that \\fB\\-\\-json\\fR prints; ? stands behind what may be absent.",
          verbatim(answer.map((/** @type {any} */ { path, text }) => `${path.padEnd(width)}  ${text}`)),
        ]),
    seeAlso(["drover", ...related]),
    "",
  ].join("\n");
}

/** @param {any} program @param {string} version */
function overviewPage({ grouped, operations, TOPICS, commandOf }, version) {
  return [
    title("drover", version),
    ".SH NAME",
    "drover \\- keep commands and coding agents at work on your own machines",
    ".SH SYNOPSIS",
    "\\fBdrover\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]",
    ".br",
    "\\fBdrover help\\fR [\\fICOMMAND\\fR | \\fITOPIC\\fR]",
    ".SH DESCRIPTION",
    "drover keeps commands and headless coding agents at work: on a schedule or on demand, under limits, across restarts.",
    "It records what became of every scheduled instant, and says in one sentence why something ran, did not run, or waits.",
    ".SH COMMANDS",
    "Each has a page of its own: \\fBman drover\\-loop\\-add\\fR.",
    ...grouped(operations).flatMap((/** @type {[string, any[]]} */ [heading, entries]) => [
      `.SS ${plain(heading)}`,
      ...entries.map(({ name, summary }) => item(commandOf(name), `${summary}.`)),
    ]),
    ...TOPICS.flatMap((/** @type {any} */ { summary, parts }) => [
      `.SH ${plain(summary.toUpperCase())}`,
      ...parts.flatMap((/** @type {any} */ part) =>
        typeof part === "string"
          ? [".PP", prose(part)]
          : part.map((/** @type {[string, string]} */ [word, meaning]) => item(word, `${meaning}.`)),
      ),
    ]),
    ".SH FILES",
    item("~/.config/drover/config.yaml", "settings; `drover config show` lists them."),
    item("~/.local/state/drover", "the store, output of runs, worktrees, backups and logs."),
    ".PP",
    "\\fBDROVER_HOME\\fR moves everything under one folder; \\fBdrover config path\\fR prints where all of it is.",
    seeAlso(
      operations
        .filter((/** @type {any} */ one) => one.hidden !== true)
        .map((/** @type {any} */ one) => pageName(commandOf(one.name))),
    ),
    "",
  ].join("\n");
}

/** @param {string} noun @param {any[]} entries @param {string} version */
function nounPage(noun, entries, version) {
  return [
    title(`drover-${noun}`, version),
    ".SH NAME",
    `drover\\-${plain(noun)} \\- ${plain(entries.map(({ name }) => name.split(".")[1]).join(", "))}`,
    ".SH SYNOPSIS",
    `\\fBdrover ${plain(noun)}\\fR \\fICOMMAND\\fR [\\fIFLAGS\\fR]`,
    ".SH COMMANDS",
    ...entries.map(({ name, summary }) => item(name.replaceAll(".", " "), `${summary}.`)),
    seeAlso(["drover", ...entries.map(({ name }) => pageName(name.replaceAll(".", " ")))]),
    "",
  ].join("\n");
}

/**
 * Every page by its file.
 * @param {any} program @param {string} version
 * @returns {Promise<Record<string, string>>}
 */
async function manPages(program, version) {
  /** @type {any[]} */
  const shown = program.operations.filter((/** @type {any} */ entry) => entry.hidden !== true);
  const nouns = new Set(shown.filter(({ name }) => name.includes(".")).map(({ name }) => name.split(".")[0]));
  const commands = shown.map(
    async (entry) =>
      /** @type {const} */ ([
        `${pageName(entry.name.replaceAll(".", " "))}.1`,
        await commandPage(entry, program, version),
      ]),
  );
  return Object.fromEntries([
    ["drover.1", overviewPage(program, version)],
    ...(await Promise.all(commands)),
    ...[...nouns].map((noun) => [
      `drover-${noun}.1`,
      nounPage(
        noun,
        shown.filter(({ name }) => name.startsWith(`${noun}.`)),
        version,
      ),
    ]),
  ]);
}

/**
 * Files of all pages, for npm, which links only what `package.json` names.
 * @param {any} program
 */
export async function manFiles(program) {
  return Object.keys(await manPages(program, "")).toSorted();
}

/**
 * Writes every page into a folder, which then holds nothing else.
 * @param {string} folder
 * @returns {Promise<readonly string[]>} the files
 */
export async function writeManPages(folder) {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const pages = await manPages(await loadProgram(), version);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const [file, text] of Object.entries(pages)) writeFileSync(join(folder, file), text);
  return Object.keys(pages);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const folder = resolve(process.argv[2] ?? join(root, "man"));
  console.log(`${(await writeManPages(folder)).length} man pages in ${relative(process.cwd(), folder)}`);
}
