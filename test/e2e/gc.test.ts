/** What is past its time goes, by hand and through the built program; what is still needed stays. */
import { existsSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

const state = (...parts: string[]): string => join(home.folder, "home", ...parts);

test("gc takes ended runs and their folders, and leaves what runs, what is new, and the answer for each instant", async () => {
  await home.json(["up"]);
  await home.json(["loop", "add", "often", "--every", "1s", "--label", "l", "--", "true"]);
  const slots = async () =>
    (await home.json<{ items: { outcome: string | null; count: number }[] }>(["loop", "slots", "often"])).items;
  await until(async () => (await slots()).filter(({ outcome }) => outcome === "succeeded").length > 2, "three slots");
  await home.json(["loop", "pause", "often"]);
  const { id: live } = await home.json<{ id: string }>(["run", "--detach", "--", "sleep", "600"]);
  await until(async () => (await home.json<{ status: string }>(["show", live])).status === "running", "it runs");
  const runs = async () => (await home.json<{ items: { id: string }[] }>(["runs"])).items.map(({ id }) => id);
  await until(async () => (await slots()).every(({ outcome }) => outcome !== null), "all slots have ended");
  const before = await runs();
  const instants = (await slots()).reduce((sum, { count }) => sum + count, 0);

  expect(await home.json(["gc"])).toMatchObject({ runs: 0, folders: 0, files: [], more: false });
  const dry = await home.json(["gc", "--older-than", "0s", "--keep", "1", "--dry-run"]);
  expect(dry).toMatchObject({ runs: before.length - 2, keptRuns: 1, dryRun: true });
  expect(await runs()).toEqual(before);
  expect(await home.json(["gc", "--older-than", "0s", "--keep", "1"])).toMatchObject({ runs: before.length - 2 });
  expect(await runs()).toEqual([live, before[1]]);
  expect((await slots()).reduce((sum, { count }) => sum + count, 0)).toBe(instants);
  expect((await home.json<{ items: unknown[] }>(["loop", "slots", "often", "--each"])).items).toHaveLength(instants);

  // Its attempts are not known any more: their folders go with the next round, once they are old.
  const folders = () => readdirSync(state("runs")).filter((name) => name.startsWith("att_"));
  const count = folders().length;
  expect(count).toBeGreaterThan(2);
  const longAgo = new Date(Date.now() - 15 * 86_400_000);
  for (const name of folders()) utimesSync(state("runs", name), longAgo, longAgo);
  expect(await home.json(["gc"])).toMatchObject({ folders: count - 2, orphans: count - 2 });
  expect(folders()).toHaveLength(2);
  expect(await home.json(["show", live])).toMatchObject({ status: "running" });
});

test("gc takes what was left half written and old copies of upgrades; a replaced store only when it is told to", async () => {
  await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
  const { file } = await home.json<{ file: string }>(["backup"]);
  const upgrades = [3, 12, 4, 5, 6, 7].map((from) => `before-${from}-to-${from + 1}-2026010${from % 10}T000000Z.db`);
  const left = ["manual-20260101T000000Z.db.4194305.partial", "mine.partial", "notes.db", ...upgrades];
  for (const name of left) writeFileSync(state("backups", name), "x");
  mkdirSync(state("restoring.4194305.partial"));
  mkdirSync(state("replaced-20260101T000000Z"));
  const dry = await home.json<{ files: string[] }>(["gc", "--dry-run"]);
  expect(dry.files.map((path) => path.slice(state().length + 1)).toSorted()).toEqual([
    "backups/before-12-to-13-20260102T000000Z.db",
    "backups/manual-20260101T000000Z.db.4194305.partial",
    "restoring.4194305.partial",
  ]);
  for (const path of dry.files) expect(existsSync(path)).toBe(true);
  expect(await home.json(["gc"])).toMatchObject({
    files: dry.files,
    replacedStores: [state("replaced-20260101T000000Z")],
  });
  for (const path of dry.files) expect(existsSync(path)).toBe(false);
  for (const path of [
    file,
    state("backups/mine.partial"),
    state("backups/notes.db"),
    state("replaced-20260101T000000Z"),
  ])
    expect(existsSync(path), path).toBe(true);
  await home.json(["gc", "--replaced"]);
  expect(existsSync(state("replaced-20260101T000000Z"))).toBe(false);
});
