import { expect, test } from "vitest";
import { groupTime, WRITER_LIMITS } from "./sqlite-thread.ts";

test("a group takes callers in for as long as its commit will take, within bounds", () => {
  const { groupMs, slowGroupMs } = WRITER_LIMITS;
  expect(groupTime(WRITER_LIMITS, 0)).toBe(groupMs);
  expect(groupTime(WRITER_LIMITS, groupMs + 7)).toBe(groupMs + 7);
  expect(groupTime(WRITER_LIMITS, 10 * slowGroupMs)).toBe(slowGroupMs);
});
