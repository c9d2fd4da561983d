import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { branchNames, placeOf, safeName } from "./names.ts";

const RUN = "run_01k2m3n4p5q6r7s8t9v0wxyz12";

test.each([
  ["nightly", "nightly"],
  ["a/b c", "a-b-c"],
  ["../../etc", "etc"],
  ["-x.lock", "x"],
  [".lock", "lock"],
  ["a..b", "a.b"],
  ["@{~^:?*[\\", "run"],
  ["\u0000\n", "run"],
  ["", "run"],
  ["käse", "käse"],
  ["x".repeat(200), "x".repeat(60)],
])("%j is %j in a ref and in a path", (name, safe) => {
  expect(safeName(name)).toBe(safe);
});

test("a place is one of the run alone, two folders below the root", () => {
  expect(placeOf("/state", { runId: RUN, name: "nightly", cwd: "/home/shop" })).toBe(`/state/shop/nightly-${RUN}`);
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.string({ unit: "binary" }), (name, folder) => {
      const place = placeOf("/state", { runId: RUN, name, cwd: `/x/${folder}` });
      expect(place.split("/")).toHaveLength(4);
      expect(place).not.toMatch(/\/\.|\0/);
    }),
  );
});

describe("names for a branch", () => {
  const part = fc.constantFrom(
    "drover",
    "nightly",
    "wxyz12",
    "drover-nightly-wxyz12",
    "nightly-wxyz12",
    "wxyz12-2",
    "x",
  );
  const branch = fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join("/"));

  test("are free, and fit between the branches that exist", () => {
    fc.assert(
      fc.property(fc.array(branch, { maxLength: 12 }), (existing) => {
        const names = branchNames("nightly", RUN, existing);
        expect(names.length).toBeGreaterThan(0);
        for (const name of names)
          for (const other of existing) {
            expect(name).not.toBe(other);
            expect(name.startsWith(`${other}/`), `${other} is above ${name}`).toBe(false);
            expect(other.startsWith(`${name}/`), `${other} is below ${name}`).toBe(false);
          }
      }),
    );
  });

  test("are what git takes, whatever the loop is called", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 80 }), (name) => {
        const [first] = branchNames(name, RUN, []);
        const end = spawnSync("git", ["check-ref-format", `refs/heads/${first}`]);
        expect([first, end.status]).toEqual([first, 0]);
      }),
      { numRuns: 60 },
    );
  });
});
