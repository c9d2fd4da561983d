/** What `doctor` shows to people. */
import { expect, test } from "vitest";
import type { Finding } from "../../ops/operation.ts";
import type { Screen } from "../screen.ts";
import { findings } from "./daemon.ts";

const same = (text: string): string => text;
const screen = (columns: number | null): Screen => ({
  columns,
  redraws: false,
  now: 0,
  good: same,
  bad: same,
  warn: same,
  dim: same,
  bold: same,
});
const finding = (more: Partial<Finding>): Finding => ({
  check: "disk",
  level: "ok",
  code: null,
  subject: null,
  message: "fine",
  hint: null,
  command: null,
  fixable: false,
  ...more,
});
const answer = (all: readonly Finding[], counts: Parameters<typeof findings>[0]["counts"] = []) => ({
  findings: all,
  counts,
  actions: [],
  selfTest: null,
});

test("below a finding stand what to know, the command in one piece, and the code", () => {
  const command = `drover loop edit nightly --cwd /${"deep/".repeat(20)}`;
  const shown = findings(
    answer(
      [
        finding({
          level: "problem",
          code: "program_missing",
          message: "it is not found",
          hint: "Install it.",
          command,
        }),
      ],
      [{ code: "program_missing", level: "problem", count: 12, shown: 1 }],
    ),
    screen(60),
  );
  const indent = " ".repeat(21);
  expect(shown.split("\n")).toEqual([
    "problem  disk        it is not found",
    `${indent}Install it.`,
    indent + command,
    `${indent}[program_missing]`,
    `problem              and 11 more of program_missing`,
    "",
    "12 problems",
    "",
  ]);
});

test("what several checks say in the same words is said once; what is in order is said of each", () => {
  const unread = { level: "note", code: "not_looked_at", message: "the store cannot be read" } as const;
  const shown = findings(
    answer(
      [finding({}), finding({ check: "stuck", ...unread }), finding({}), finding({ check: "growth", ...unread })],
      [{ code: "not_looked_at", level: "note", count: 2, shown: 2 }],
    ),
    screen(null),
  );
  expect(shown).toBe(
    "ok       disk        fine\n" +
      "note     several     stuck, growth: the store cannot be read\n" +
      `${" ".repeat(21)}[not_looked_at]\n` +
      "ok       disk        fine\n\n2 notes\n",
  );
});

test("nothing that a process is called reaches the terminal as more than text", () => {
  const shown = findings(
    answer([finding({ message: "pid 1 (\u001b[31mred\u001b[0m)", command: "a\u0007b" })]),
    screen(null),
  );
  expect(shown).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
});
