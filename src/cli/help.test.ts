import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { operations } from "../ops/index.ts";
import { commandHelp, groupHelp, grouped, overview, topicHelp } from "./help.ts";
import { widthOf } from "./text.ts";
import { TOPICS } from "./topics.ts";

const shown = operations.filter((entry) => entry.hidden !== true);
const pages = async (): Promise<readonly (readonly [name: string, text: string])[]> => [
  ["", overview(operations, null)],
  ...TOPICS.map((topic) => [topic.name, topicHelp(topic, null)] as const),
  ...[...new Set(shown.map(({ name }) => name.split(".")[0] ?? ""))].map(
    (noun) => [noun, groupHelp(operations, noun, null) ?? ""] as const,
  ),
  ...(await Promise.all(
    shown.map(async ({ name, load }) => [name, commandHelp((await load()).operation, null)] as const),
  )),
];

describe("help", () => {
  test("every page fits 80 columns, and ends with a line end", async () => {
    const wide: string[] = [];
    for (const [name, text] of await pages()) {
      for (const line of text.split("\n")) if (widthOf(line) > 80) wide.push(`${name}: ${line}`);
      if (text !== "") expect([name, text.endsWith("\n")]).toEqual([name, true]);
    }
    expect(wide).toEqual([]);
  });

  test("every command stands once on the first page, in a group of its own kind", () => {
    const groups = grouped(operations);
    expect(groups.flatMap(([, entries]) => entries.map(({ name }) => name)).toSorted()).toEqual(
      shown.map(({ name }) => name).toSorted(),
    );
    expect(groups.map(([title]) => title)).not.toContain("More");
  });

  test("a page says words, flags with what is usual, examples, and what the command ends with", async () => {
    const entry = operations.find(({ name }) => name === "loop.add");
    const text = commandHelp((await entry?.load())?.operation as never, null);
    expect(text).toMatch(/^Usage: drover loop add NAME \[FLAGS\] \[-- COMMAND \.\.\.\]\n/);
    expect(text).toContain("\n  NAME            the loop's name");
    expect(text).toContain("(usually 60s)");
    expect(text).toContain("\nAn agent\n      --agent PROVIDER");
    expect(text).toContain("\n  drover loop add fetch --every 15m -- git fetch --all\n");
    expect(text).toMatch(/\nEnds with\n {2}0 {4}it was done\n/);
  });

  test("every command has an example, and a shell takes its lines as the one that they were", async () => {
    const without: string[] = [];
    for (const { name, load } of shown) {
      const { operation } = await load();
      const examples = operation.cli.examples ?? [];
      if (examples.length === 0) without.push(name);
      const printed = commandHelp(operation, null).split("\nExamples\n")[1]?.split("\n\n")[0] ?? "";
      if (!printed.includes("\\\n")) continue;
      const words = (script: string) =>
        spawnSync("/bin/sh", ["-c", `drover() { printf '%s\\n' "$@" end; }\n${script}`], { encoding: "utf8" }).stdout;
      expect([name, words(printed)]).toEqual([name, words(examples.map((one) => `drover ${one}`).join("\n"))]);
    }
    // Nothing is to be chosen there.
    expect(without.filter((name) => !OBVIOUS.has(name))).toEqual([]);
  });

  test("the variables that are read and given are told", () => {
    const topic = JSON.stringify(TOPICS.find(({ name }) => name === "environment"));
    const root = new URL("../", import.meta.url);
    const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((file) =>
      /(?<!\.test|\.contract)\.ts$/.test(file),
    );
    const named = new Set<string>();
    for (const file of files)
      for (const [, read, set, given] of readFileSync(new URL(file, root), "utf8").matchAll(
        /\benv\["([A-Z_]+)"\]|isSet\("([A-Z_]+)"\)|^\s+(DROVER_[A-Z_]+): /gm,
      ))
        named.add(read ?? set ?? given ?? "");
    const untold = [...named].filter((name) => !INNER.test(name) && !new RegExp(`\\b${name}\\b`).test(topic));
    expect(untold).toEqual([]);
  });
});

/** Commands without anything to write behind them. */
const OBVIOUS = new Set(["config.path", "config.check", "version"]);
/** What tests, a unit and a daemon of ours say to themselves, what imports fill in for cron and systemd, and other programs'. */
const INNER =
  /^(DROVER_(TEST_.*|KILL_.*|BACKGROUND|SERVICE|ERRAND_ID|X_.*)|USER|LOGNAME|TMPDIR|XDG_DATA_HOME|PNPM_HOME|IS_SANDBOX|CLAUDE_.*|GEMINI_.*|CODEX_.*)$/;
