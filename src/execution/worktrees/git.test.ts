import { expect, test } from "vitest";
import type { ErrandEnd } from "../errand.ts";
import { withoutPasswords, wordsOf } from "./git.ts";

const ended = (stderr: string, more: Partial<ErrandEnd> = {}): ErrandEnd => ({
  exit: 128,
  timedOut: false,
  stdout: Buffer.alloc(0),
  stderr: Buffer.from(stderr),
  cut: false,
  whole: true,
  fault: null,
  report: null,
  ...more,
});

test.each([
  ["https://me:hunter2@host/x.git", "https://[secret]@host/x.git"],
  ["https://ghp_token@host/x.git", "https://[secret]@host/x.git"],
  ["'https://me:p@ss/w@rd@host/x'", "'https://[secret]@host/x'"],
  ["ssh://git@host:22/x.git", "ssh://git@host:22/x.git"],
  ["ssh://git:hunter2@host/x.git", "ssh://[secret]@host/x.git"],
  ["git@host:x.git", "git@host:x.git"],
  ["https://host/x?access_token=abc&b=1", "https://host/x?access_token=[secret]&b=1"],
  ["https://host:8443/x.git", "https://host:8443/x.git"],
  ["a https://u:a@h/1 and https://u:b@h/2", "a https://[secret]@h/1 and https://[secret]@h/2"],
])("an address is told without what it holds: %s", (text, told) => {
  expect(withoutPasswords(text)).toBe(told);
});

test("words are one line, without advice, progress and colours, and not too long", () => {
  const said =
    "Updating files: 10%\rUpdating files: 20%\rremote: \u001b[31mno\u001b[0m\nhint: try x\nfatal: gone\nfatal: gone\n";
  expect(wordsOf(ended(said), 1000)).toBe("remote: no; fatal: gone");
  expect(wordsOf(ended("fatal: https://me:hunter2@host/x failed"), 1000)).toBe("fatal: https://[secret]@host/x failed");
  expect(wordsOf(ended("x".repeat(5000)), 1000).length).toBeLessThan(700);
});

test("without words: the status, the limit, the signal, the missing program", () => {
  expect(wordsOf(ended(""), 1000)).toBe("git ended with status 128");
  expect(wordsOf(ended("", { exit: null }), 1000)).toBe("git was ended by a signal");
  expect(wordsOf(ended("fatal: slow", { exit: null, timedOut: true }), 1500)).toBe(
    "git did not end within 1.5 s: fatal: slow",
  );
  expect(wordsOf(ended("", { exit: null, fault: "spawn git ENOENT" }), 1)).toBe(
    "git could not be started: spawn git ENOENT",
  );
});
