import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Arena } from "../../test/fixtures/hostile/arena.ts";
import { openArena, sh, until } from "../../test/fixtures/hostile/arena.ts";
import { capLogs, DEFAULT_LOG_CAP, readHoles } from "./log-cap.ts";
import { followLog, readLog } from "./logs.ts";
import { findTool } from "./resident.ts";

const KIB = 1024;
const cap = { softBytes: 256 * KIB, headBytes: 16 * KIB, tailBytes: 64 * KIB, everyMs: 0 };
const occupied = (file: string) => statSync(file).blocks * 512;
/** Numbered lines of ten bytes. */
const lines = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, i) => `${String(from + i).padStart(9, "0")}\n`).join("");

let arena: Arena;
beforeEach(() => {
  arena = openArena({ logCap: cap });
});
afterEach(async () => {
  await arena.close();
});

describe.each([
  ["punched holes", findTool("fallocate")],
  ["a sparse copy at the end", null],
])("a log over its cap, by %s", (_way, fallocate) => {
  test("keeps head and tail whole with their offsets, and says what is gone", async () => {
    const folder = mkdtempSync(join(tmpdir(), "drover-cap-"));
    try {
      const text = lines(0, 100_000);
      writeFileSync(join(folder, "out"), text);
      writeFileSync(join(folder, "err"), "small\n");
      await capLogs(folder, cap, true, fallocate);
      expect(statSync(join(folder, "out")).size).toBe(text.length);
      expect(occupied(join(folder, "out"))).toBeLessThanOrEqual(cap.headBytes + cap.tailBytes + 16 * KIB);
      const hole = readHoles(folder).stdout;
      if (hole === undefined) throw new Error("no hole");
      const left = readFileSync(join(folder, "out"), "latin1");
      expect(left.slice(0, cap.headBytes)).toBe(text.slice(0, cap.headBytes));
      expect(left.slice(-cap.tailBytes)).toBe(text.slice(-cap.tailBytes));
      expect(readFileSync(join(folder, "err"), "utf8")).toBe("small\n");
      const shown = await readLog(folder, "stdout", { from: hole.from, raw: true });
      expect(shown.text.startsWith(`[... ${hole.to - hole.from} bytes dropped ...]\n`)).toBe(true);
      expect(shown.text).toContain("000099999\n");
      expect(shown.text).not.toContain("\0");
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

test("B-027 B-075 a flood is cut to the cap while it runs, the run goes on, and head and tail are kept", async () => {
  // 30 MB in steps; the disk must stay near the cap although nothing else than `trim` is called.
  await arena.start(
    "att_flood.1",
    sh("i=0; while [ $i -lt 300 ]; do i=$((i+1)); seq -f '%09.0f' $((i*10000)) $((i*10000+9999)); done; exit 5"),
  );
  let most = 0;
  const end = await until(
    "the flood ends",
    async () => {
      await arena.spawner.trim("att_flood.1", false);
      const file = arena.path("att_flood.1", "out");
      if (arena.spawner.measure("att_flood.1").stdoutBytes > 0) most = Math.max(most, occupied(file));
      const judgement = await arena.judge("att_flood.1");
      return judgement.kind === "ended" ? judgement : null;
    },
    60_000,
  );
  await arena.spawner.trim("att_flood.1", true);
  expect(end.exit).toBe(5);
  expect(arena.spawner.measure("att_flood.1").stdoutBytes).toBe(30_000_000);
  expect(occupied(arena.path("att_flood.1", "out"))).toBeLessThanOrEqual(cap.softBytes);
  expect(most).toBeLessThan(20_000_000);
  const head = await readLog(arena.path("att_flood.1"), "stdout", { raw: true, maxBytes: 100 });
  expect(head.text.startsWith("000010000\n000010001\n")).toBe(true);
  expect((await arena.files.tail("att_flood.1", "stdout", 20)).text).toBe("003009998\n003009999\n");
});

test("a follower of a flood that is being punched sees lines in order, without zeros and without repeats", async () => {
  await arena.start(
    "att_follow.1",
    sh("i=0; while [ $i -lt 100 ]; do i=$((i+1)); seq -f '%09.0f' $((i*10000)) $((i*10000+9999)); done"),
  );
  const ended = new AbortController();
  let text = "";
  const following = (async () => {
    for await (const piece of followLog(arena.path("att_follow.1"), "stdout", {
      raw: true,
      ended: ended.signal,
      everyMs: 1,
    }))
      text += piece.text;
  })();
  await until(
    "it ends",
    async () => {
      await arena.spawner.trim("att_follow.1", false);
      return (await arena.judge("att_follow.1")).kind === "ended";
    },
    60_000,
  );
  ended.abort();
  await following;
  const shown = text.split("\n");
  const isNote = (line: string | undefined) => line?.startsWith("[... ") === true;
  let last = 0;
  for (const [at, line] of shown.entries()) {
    if (/^\d{9}$/.test(line) && Number(line) > last) last = Number(line);
    // What a hole cuts is a part of a line, beside the note.
    else if (!isNote(line) && line !== "")
      expect([line, isNote(shown[at - 1]) || isNote(shown[at + 1])]).toEqual([
        expect.stringMatching(/^\d{1,8}$/),
        true,
      ]);
  }
  expect(last).toBe(1_009_999);
});

test("trim is bounded in time: within its interval it looks once", async () => {
  await arena.close();
  arena = openArena({ logCap: { ...cap, everyMs: DEFAULT_LOG_CAP.everyMs } });
  await arena.spawner.prepare(arena.launch("att_often.1", ["true"]));
  writeFileSync(arena.path("att_often.1", "out"), lines(0, 100_000));
  await arena.spawner.trim("att_often.1", false);
  const first = readHoles(arena.path("att_often.1")).stdout?.to;
  writeFileSync(arena.path("att_often.1", "out"), lines(0, 200_000));
  await arena.spawner.trim("att_often.1", false);
  expect(readHoles(arena.path("att_often.1")).stdout?.to).toBe(first);
  await arena.spawner.trim("att_often.1", true);
  expect(readHoles(arena.path("att_often.1")).stdout?.to).toBeGreaterThan(first ?? 0);
});
