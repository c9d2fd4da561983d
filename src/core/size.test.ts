import fc from "fast-check";
import { expect, test } from "vitest";
import { describeSize, formatSize, parseSize } from "./size.ts";

test.each([
  ["0", 0],
  ["4096", 4_096],
  ["4096B", 4_096],
  ["64kB", 64_000],
  ["64KB", 64_000],
  ["10MB", 10_000_000],
  ["10mb", 10_000_000],
  ["1GiB", 1_073_741_824],
  ["64MiB", 67_108_864],
  ["2KiB", 2_048],
  ["1TB", 1_000_000_000_000],
  ["1TiB", 1_099_511_627_776],
])("%s is %d bytes", (text, bytes) => {
  expect(parseSize(text)).toBe(bytes);
});

test.each([
  "",
  "MB",
  "-1",
  "1.5GB",
  "1G",
  "10M",
  "1 GB",
  "1GB2MB",
  "0x10",
  "1e6",
  "1PB",
  "9007199254740992",
  "9000TiB",
  "B1",
])("%j is refused", (text) => {
  expect(() => parseSize(text, "logCapBytes")).toThrow(
    expect.objectContaining({ kind: "invalid", code: "bad_size", path: "logCapBytes", hint: expect.any(String) }),
  );
});

test("what is formatted reads as the same number", () => {
  const near = fc
    .tuple(fc.nat({ max: 5_000 }), fc.constantFrom(1, 1e3, 1024, 1e6, 2 ** 20, 1e9, 2 ** 30))
    .map(([n, unit]) => n * unit);
  fc.assert(
    fc.property(fc.oneof(near, fc.maxSafeNat()), (bytes) => {
      expect(parseSize(formatSize(bytes))).toBe(bytes);
    }),
  );
});

test.each([
  [0, "0B"],
  [1_000_000, "1MB"],
  [67_108_864, "64MiB"],
  [1_536, "1536B"],
  [10_240, "10KiB"],
])("%d bytes are written %s", (bytes, text) => {
  expect(formatSize(bytes)).toBe(text);
});

test.each([
  [0, "0 B"],
  [812, "812 B"],
  [1_023, "1023 B"],
  [1_536, "1.5 KiB"],
  [1_500_000, "1.4 MiB"],
  [67_108_864, "64 MiB"],
])("people read %d bytes as %s", (bytes, text) => {
  expect(describeSize(bytes)).toBe(text);
});
