/** What `apply` tells of its rounds. */
import { expect, test } from "vitest";
import type { Screen } from "../screen.ts";
import { applyRound } from "./declared.ts";

const same = (text: string): string => text;
const screen: Screen = {
  columns: 80,
  redraws: false,
  now: 0,
  good: same,
  bad: same,
  warn: same,
  dim: same,
  bold: same,
};

test("a file that is wrong while it is watched is named where it lies, and the hint is a sentence of its own", () => {
  const problem = {
    code: "bad_yaml",
    message: "a tab cannot indent",
    file: "/srv/shop/drover.yaml",
    line: 3,
    column: 1,
  };
  expect(applyRound({ error: { code: "bad_input", message: "1 problem", problems: [problem] } }, screen)).toBe(
    "/srv/shop/drover.yaml:3:1: a tab cannot indent\n1 problem; what was applied last stays\n",
  );
  expect(
    applyRound({ error: { code: "no_such_file", message: "there is no file", hint: "Check its spelling." } }, screen),
  ).toBe("there is no file; what was applied last stays. Check its spelling.\n");
});
