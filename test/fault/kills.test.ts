/**
 * Real kills by a fixed seed, an upgrade in the middle of them; `npm run kills` does the same by the thousand.
 * DROVER_KILLS (40) and DROVER_SEED (1) repeat a failure.
 */
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPostgres } from "../postgres.ts";
import { builtProgram } from "./installation.ts";
import { freshDatabase, killsOf, ordeal, serverKiller } from "./ordeal.ts";

const KILLS = Number(process.env["DROVER_KILLS"] ?? 40);
const SEED = Number(process.env["DROVER_SEED"] ?? 1);
/** Homes side by side: most of a round is waiting. */
const HOMES = [SEED, SEED + 1];
const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** The same program under a later version: what an upgrade puts in the place of the running one. */
function newerBuild(): string {
  const folder = mkdtempSync(join(tmpdir(), "drover-newer-"));
  folders.push(folder);
  cpSync(dirname(builtProgram), join(folder, "dist"), { recursive: true });
  cpSync(join(dirname(builtProgram), "..", "package.json"), join(folder, "package.json"));
  const modules = join(dirname(builtProgram), "..", "node_modules");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  const [major, minor, patch] = version.split(".");
  const later = `${major}.${minor}.${Number(patch) + 1}`;
  let changed = 0;
  for (const name of readdirSync(join(folder, "dist"), { recursive: true, encoding: "utf8" })) {
    if (!/\.m?js$/.test(name)) continue;
    const text = readFileSync(join(folder, "dist", name), "utf8");
    if (!text.includes(`"${version}"`)) continue;
    changed++;
    writeFileSync(join(folder, "dist", name), text.replaceAll(`"${version}"`, `"${later}"`));
  }
  if (changed === 0) throw new Error("the built program does not name its version");
  cpSync(modules, join(folder, "node_modules"), {
    recursive: true,
    filter: (path) =>
      path === modules ||
      /node_modules\/(better-sqlite3|bindings|file-uri-to-path|pg[^/]*|postgres-[^/]*|xtend|split2)(\/|$)/.test(path),
  });
  return join(folder, "dist", "drover.js");
}

let programs: readonly string[];
beforeAll(() => {
  programs = [builtProgram, newerBuild()];
});

describe(`${KILLS} real kills (DROVER_SEED=${SEED})`, () => {
  test("B-019 on SQLite", { timeout: 600_000 }, async () => {
    const tallies = await Promise.all(
      HOMES.map((seed, i) => ordeal({ seed, kills: KILLS / HOMES.length, programs, silentFirst: i === 1 })),
    );
    expect(tallies.reduce((sum, tally) => sum + killsOf(tally), 0)).toBeGreaterThanOrEqual(KILLS);
    expect(tallies.reduce((sum, tally) => sum + tally.between, 0)).toBeGreaterThan(0);
    expect(tallies[1]?.stopped).toBeGreaterThan(0);
  });

  test.skipIf(process.env["DROVER_TEST_STORES"] === "sqlite")(
    "B-019 on PostgreSQL, whose server is killed too, with a host that takes over",
    { timeout: 600_000 },
    async () => {
      const cluster = await startPostgres({ durable: "crash" });
      const killServer = serverKiller(cluster);
      try {
        const tallies = await Promise.all(
          HOMES.map(async (seed, i) =>
            ordeal({
              seed,
              kills: KILLS / HOMES.length,
              programs,
              database: await freshDatabase(cluster),
              killServer,
              withPeer: i === 1,
              silentFirst: i === 1,
            }),
          ),
        );
        expect(tallies.reduce((sum, tally) => sum + killsOf(tally), 0)).toBeGreaterThanOrEqual(KILLS);
        expect(tallies.reduce((sum, tally) => sum + tally.server, 0)).toBeGreaterThan(0);
        expect(tallies[1]?.takenOver).toBeGreaterThan(0);
      } finally {
        await cluster.stop();
      }
    },
  );
});
