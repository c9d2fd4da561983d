import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { parseArguments, requireGiven } from "../src/cli/arguments.ts";
import { parseCron } from "../src/core/cron.ts";
import { defaultLimits } from "../src/core/limits.ts";
import { failureClasses } from "../src/core/run.ts";
import { parseDuration } from "../src/core/duration.ts";
import { checkZone } from "../src/core/zone.ts";
import { findEntry, operations } from "../src/ops/index.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const read = (path: string): string => readFileSync(join(root, path), "utf8");
const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(ending))
    .map((name) => join(folder, name));

/** What users read: each command line in it has to work. */
const forUsers = ["README.md", "docs/runbook.md", ...filesIn("docs/guide", ".md")];
const all = [
  ...new Set([
    ...readdirSync(root).filter((name) => name.endsWith(".md")),
    ...filesIn("docs", ".md"),
    ...filesIn("examples", ".md"),
  ]),
];

// --- Command lines of a document -----------------------------------------------------------------------------------------

interface Block {
  readonly language: string;
  readonly text: string;
}

function blocksOf(markdown: string): Block[] {
  return [...markdown.matchAll(/^```(\w*)\n([^]*?)^```$/gm)].map(([, language = "", text = ""]) => ({
    language,
    text,
  }));
}

const withoutBlocks = (markdown: string): string => markdown.replace(/^```\w*\n[^]*?^```$/gm, "");

/** Words of one simple command as a shell reads them; commands end at `|`, `&&`, `||`, `;`, `&` and newlines. */
function commandsOf(text: string): string[][] {
  const commands: string[][] = [[]];
  let word: string | null = null;
  const endWord = () => {
    if (word !== null) commands.at(-1)?.push(word);
    word = null;
  };
  for (let i = 0; i < text.length; i++) {
    const letter = text[i] as string;
    if (letter === "\\") {
      i++;
      if (text[i] !== "\n") word = (word ?? "") + (text[i] ?? "");
    } else if (letter === "'" || letter === '"') {
      word ??= "";
      for (i++; i < text.length && text[i] !== letter; i++) {
        if (letter === '"' && text[i] === "\\" && /["\\$`]/.test(text[i + 1] ?? "")) i++;
        word += text[i];
      }
    } else if (letter === "#" && word === null) {
      while (i + 1 < text.length && text[i + 1] !== "\n") i++;
    } else if (letter === "$" && text[i + 1] === "(") {
      // What is inside is a command of its own.
      const end = text.indexOf(")", i);
      commands.splice(-1, 0, ...commandsOf(text.slice(i + 2, end)));
      word = `${word ?? ""}SUBSTITUTED`;
      i = end;
    } else if (/[|&;\n]/.test(letter)) {
      endWord();
      commands.push([]);
    } else if (/\s/.test(letter)) endWord();
    else word = (word ?? "") + letter;
  }
  endWord();
  return commands.filter((words) => words.length > 0);
}

/** The words after `drover` of every command line in fenced blocks and in code within lines. */
function droverLines(markdown: string): string[][] {
  const fenced = blocksOf(markdown).flatMap(({ language, text }) => {
    if (language === "sh") return commandsOf(text);
    if (language !== "console") return [];
    const typed = text.split("\n").filter((line) => line.startsWith("$ "));
    return typed.flatMap((line) => commandsOf(line.slice(2)));
  });
  const inline = [...withoutBlocks(markdown).matchAll(/`([^`\n]+)`/g)].flatMap(([, code = ""]) => commandsOf(code));
  return [...fenced, ...inline].flatMap((words) => {
    const first = words.findIndex((word) => !/^[A-Z_]+=/.test(word));
    return words[first] === "drover" ? [words.slice(first + 1)] : [];
  });
}

/** `...` in a line stands for what is left out. */
const isWhole = (words: readonly string[]): boolean => !words.includes("...");

async function faultOf(words: readonly string[]): Promise<string | null> {
  const [first = "", second = ""] = words;
  if (/^--(help|version)$/.test(first)) return null;
  const two = findEntry(`${first}.${second}`);
  const entry = two ?? findEntry(first);
  // A noun alone names its group.
  if (entry === undefined)
    return words.length === 1 && operations.some(({ name }) => name.startsWith(`${first}.`))
      ? null
      : `there is no command drover ${first} ${second}`;
  const { operation } = await entry.load();
  const rest = words.slice(two === undefined ? 1 : 2).filter((word) => word !== "...");
  try {
    const { input } = parseArguments(operation, rest, root, () => "");
    if (isWhole(words) && rest.length > 0) requireGiven(operation, input);
    if (typeof input["cron"] === "string") parseCron(input["cron"]);
    if (typeof input["tz"] === "string") checkZone(input["tz"]);
    if (typeof input["every"] === "string") parseDuration(input["every"]);
    if (typeof input["expression"] === "string" && !/^\d+[a-z]/.test(input["expression"]))
      parseCron(input["expression"]);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

describe("command lines of the documents", () => {
  test.each(forUsers)("%s: each one parses", async (path) => {
    const faults: string[] = [];
    const lines = droverLines(read(path));
    for (const words of lines) {
      const fault = await faultOf(words);
      if (fault !== null) faults.push(`drover ${words.join(" ")}: ${fault}`);
    }
    expect(faults).toEqual([]);
    expect(lines.length).toBeGreaterThan(0);
  });

  test("a flag, a command, an expression and a missing word that are wrong are found", async () => {
    const wrong = [
      "drover loop add x --every 5m --no-such -- true",
      "drover lop ls",
      'drover schedule next "61 * * * *"',
      "drover loop add --every 5m -- true",
      "echo; drover runs --status nothing",
    ];
    for (const line of wrong) {
      const [words] = droverLines(`\`\`\`sh\n${line}\n\`\`\`\n`);
      expect(words, line).toBeDefined();
      expect(await faultOf(words ?? []), line).not.toBeNull();
    }
  });
});

// --- Names that documents share with the code -----------------------------------------------------------------------------

const sources = ["src", "test", "scripts"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => /\.(ts|mjs)$/.test(name) && !name.includes("node_modules"))
    .map((name) => join(folder, name)),
);

describe("names in the documents", () => {
  test.each(forUsers)("%s: settings and codes exist", (path) => {
    const text = read(path);
    const settings = [...text.matchAll(/`limits\.(\w+)`/g)].map(([, name = ""]) => name);
    expect(settings.filter((name) => !Object.hasOwn(defaultLimits, name))).toEqual([]);
    const inYaml = blocksOf(text)
      .filter(({ language }) => language === "yaml")
      .flatMap(({ text: yaml }) => [...yaml.matchAll(/^ {2}(\w+(?:Ms|Bytes)):/gm)].map(([, name = ""]) => name));
    expect(inYaml.filter((name) => !Object.hasOwn(defaultLimits, name))).toEqual([]);
    const shipped = sources.filter((name) => name.startsWith("src/")).map(read);
    const codes = [...withoutBlocks(text).matchAll(/`([a-z]+(?:_[a-z]+)+)`/g)].map(([, code = ""]) => code);
    expect(codes.filter((code) => !shipped.some((source) => source.includes(code)))).toEqual([]);
  });

  test("the guide has every class of failure that can happen now", () => {
    const later = ["oom", "workspace", "no_result", "refused", "rate_limited", "quota", "auth", "overloaded"].concat([
      "network",
      "context",
      "turn_limit",
      "budget",
      "protocol",
      "unknown",
    ]);
    const text = read("docs/guide/troubles.md");
    expect(failureClasses.filter((name) => !later.includes(name) && !text.includes(`\`${name}\``))).toEqual([]);
  });

  test.each(["ARCHITECTURE.md", "AGENTS.md", "CONTRIBUTING.md"])("%s names files that exist", (path) => {
    const named = [...read(path).matchAll(/`((?:[\w.-]+\/)*[\w.-]+\.(?:ts|mjs|sql|md))`/g)].map(
      ([, name = ""]) => name,
    );
    const known = [...sources, ...all];
    // Forms such as `x.test.ts` stand for many.
    const form = (name: string) => /^(x\.|NNNN|\.)/.test(name);
    expect(
      named.filter((name) => !form(name) && !known.some((one) => one === name || one.endsWith(`/${name}`))),
    ).toEqual([]);
  });

  test("ARCHITECTURE.md names functions where they are", () => {
    const faults: string[] = [];
    for (const [, name = "", path = ""] of read("ARCHITECTURE.md").matchAll(
      /`(\w+)(?:\([^`]*\))?` in `([\w/.-]+\.ts)`/g,
    )) {
      const file = sources.find((one) => one.endsWith(`/${path}`));
      if (file === undefined || !new RegExp(`\\b${name}\\b`).test(read(file))) faults.push(`${name} in ${path}`);
    }
    expect(faults).toEqual([]);
  });
});

// --- Links, and what must not be there ------------------------------------------------------------------------------------

const slugOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .trim()
    .replace(/ /g, "-");

describe("the documents as a whole", () => {
  test.each(all)("%s: links lead somewhere", (path) => {
    const faults: string[] = [];
    for (const [, target = ""] of withoutBlocks(read(path)).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target)) continue;
      const [file = "", anchor] = target.split("#");
      const place = file === "" ? join(root, path) : resolve(root, dirname(path), file);
      if (!existsSync(place) || relative(root, place).startsWith("..")) faults.push(target);
      else if (anchor !== undefined) {
        const headings = [...readFileSync(place, "utf8").matchAll(/^#+ (.+)$/gm)].map(([, one = ""]) => slugOf(one));
        if (!headings.includes(anchor)) faults.push(target);
      }
    }
    expect(faults).toEqual([]);
  });

  test("an error that is passed a kind has each of them in the reference: files that collide with what is there", () => {
    expect(read("docs/reference/errors.md")).toMatch(/^\| `bad_declaration` \| 4 conflict, 2 invalid \|/m);
  });

  test("each guide is reached from the README and from the list of documents", () => {
    for (const path of filesIn("docs/guide", ".md")) {
      expect(read("README.md")).toContain(`(${path})`);
      expect(read("docs/README.md")).toContain(`(${path.slice("docs/".length)})`);
    }
    for (const path of filesIn("docs/adr", ".md").filter((one) => /\d{4}-/.test(one)))
      expect(read("docs/adr/README.md")).toContain(`(${path.slice("docs/adr/".length)})`);
  });

  test.each([...all, ...filesIn("examples", ".sh")])("%s names no place of one machine", (path) => {
    const text = read(path);
    const faults = [root, tmpdir() === "/tmp" ? null : tmpdir(), hostname().length > 3 ? hostname() : null].filter(
      (one) => one !== null && text.includes(one),
    );
    expect(faults).toEqual([]);
    expect(text).not.toMatch(/(?<![\w~$}])\/(?:tmp|root|work|Users)\//);
  });
});

// --- The examples -----------------------------------------------------------------------------------------------------------

describe("the examples", () => {
  const folder = mkdtempSync(join(tmpdir(), "drover-docs-"));
  const repository = join(folder, "shop");
  const home = join(folder, "home");
  const bin = join(folder, "bin");
  mkdirSync(repository);
  mkdirSync(bin);
  writeFileSync(join(bin, "drover"), `#!/bin/sh\nexec "${process.execPath}" "${join(root, "dist/drover.js")}" "$@"\n`, {
    mode: 0o755,
  });
  const environment: NodeJS.ProcessEnv = {
    PATH: `${bin}:${process.env["PATH"] ?? ""}`,
    HOME: folder,
    TMPDIR: folder,
    DROVER_HOME: home,
    GIT_AUTHOR_NAME: "a",
    GIT_AUTHOR_EMAIL: "a@example.org",
    GIT_COMMITTER_NAME: "a",
    GIT_COMMITTER_EMAIL: "a@example.org",
    GIT_CONFIG_NOSYSTEM: "1",
  };
  const sh = (file: string, args: readonly string[], more: { input?: string; env?: NodeJS.ProcessEnv } = {}): string =>
    execFileSync(file, args, {
      cwd: repository,
      encoding: "utf8",
      env: { ...environment, ...more.env },
      input: more.input ?? "",
      stdio: ["pipe", "pipe", "pipe"],
    });
  const example = (name: string): string => join(root, "examples", name);
  sh("git", ["init", "-q", "-b", "main", "."]);
  sh("git", ["commit", "-q", "--allow-empty", "-m", "first"]);
  afterAll(() => {
    // Only what `loop run` started; it goes by itself when idle.
    sh("drover", ["down", "--stop-runs"]);
    rmSync(folder, { recursive: true, force: true });
  });

  test("nightly-fetch adds a loop, and changes it the second time", () => {
    sh(example("nightly-fetch.sh"), [repository]);
    sh(example("nightly-fetch.sh"), []);
    const { items } = JSON.parse(sh("drover", ["loop", "ls", "--json"])) as {
      items: { name: string; revision: number }[];
    };
    expect(items.map(({ name }) => name)).toEqual(["fetch-shop"]);
  });

  test("agent-loop keeps what the agent committed on a branch, and nothing else", () => {
    const agent = join(bin, "agent");
    writeFileSync(agent, "#!/bin/sh\ncat >note && git add note && git commit -qm note\n", { mode: 0o755 });
    const prompt = join(folder, "prompt");
    writeFileSync(prompt, "write a note");
    sh(example("agent-loop.sh"), ["work", prompt], { env: { AGENT: agent } });
    const branches = () => sh("git", ["branch", "--format=%(refname:short)"]).trim().split("\n");
    const [branch = ""] = branches().filter((one) => one.startsWith("agent/"));
    expect(sh("git", ["show", `${branch}:note`])).toBe("write a note");
    expect(sh("git", ["worktree", "list"]).trim().split("\n")).toHaveLength(1);

    sh(example("agent-loop.sh"), ["work", prompt], { env: { AGENT: "cat", DROVER_RUN_ID: "run_none" } });
    expect(branches()).toEqual([branch, "main"].toSorted());

    sh(example("agent-loop.sh"), ["work", prompt], { env: { AGENT: "tee left", DROVER_RUN_ID: "run_dirty" } });
    expect(sh("git", ["worktree", "list"]).trim().split("\n")).toHaveLength(2);
  });

  test("agent-loop adds a loop that runs", () => {
    const prompt = join(folder, "prompt");
    writeFileSync(prompt, "do nothing");
    sh(example("agent-loop.sh"), ["add", "night", prompt], { env: { AGENT: "cat" } });
    const answer = JSON.parse(sh("drover", ["loop", "run", "night", "--wait", "--json"])) as {
      run: { status: string; output: { commits: number } };
    };
    expect(answer.run).toMatchObject({ status: "succeeded", output: { commits: 0 } });
  });
});
