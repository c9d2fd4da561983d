import { expect, test } from "vitest";
import { inWords } from "./fault-words.ts";

test.each([
  [
    "it could not be prepared: Error: EACCES: permission denied, mkdir '/s/runs/a'",
    "it could not be prepared: /s/runs/a cannot be used: permission is denied (EACCES)",
  ],
  ["Error: ENOSPC: no space left on device, write", "its file system is full (ENOSPC)"],
  [
    "EXDEV: cross-device link not permitted, rename '/a' -> '/b'",
    "EXDEV: cross-device link not permitted, rename '/a' -> '/b'",
  ],
  ["exited with status 1", "exited with status 1"],
])("%s", (text, words) => {
  expect(inWords(text)).toBe(words);
});
