import { expect, test } from "vitest";
import { openProcessTable, type ProcessTable } from "./processes.ts";
import { endTree, type Tree } from "./tree.ts";

const gone: Tree = {
  leader: null,
  recorder: true,
  since: null,
  own: [],
  mark: "DROVER_ATTEMPT_ID=att_of_nobody",
  cgroup: null,
  reaper: false,
};

/** Ends a tree of which nothing is left, with lists that are of a quiet moment or not. */
async function endWith(quiet: readonly boolean[]): Promise<{ readonly looks: number; readonly proof: string }> {
  const real = openProcessTable();
  const none = { all: [], byPid: new Map(), byParent: new Map(), bySession: new Map(), byGroup: new Map() };
  let looks = 0;
  const table: ProcessTable = {
    ...real,
    look: async () => ({ snapshot: { ...none, byMark: new Map() }, quiet: quiet[looks++] ?? false }),
  };
  const { proof } = await endTree(gone, 0, table);
  return { looks, proof };
}

test("one list of a quiet moment proves that nothing is left; each end asks for it, so it is taken once", async () => {
  expect(await endWith([true])).toEqual({ looks: 1, proof: "proved_empty" });
});

test("a list while processes are made proves nothing, and another is taken", async () => {
  expect(await endWith([false, true])).toEqual({ looks: 2, proof: "proved_empty" });
  expect((await endWith([])).proof).toBe("not_proved");
});
