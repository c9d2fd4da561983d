/** Upgrades: a newer program on the store of an older one, and the other way round, with builds of both. */
import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { migrationsOf, ownMigrations } from "../../src/store/migrate.ts";
import { openHome, until } from "./drover.ts";

const root = resolve(fileURLToPath(import.meta.url), "../../..");
const known = migrationsOf(ownMigrations(), "sqlite").length;

/** The next version: this one with another migration, built from a copy of the sources. */
let folder: string;
let newer: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-newer-"));
  for (const name of ["src", "scripts", "package.json", "package-lock.json", "tsconfig.json"])
    cpSync(join(root, name), join(folder, name), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const number = String(known + 1).padStart(4, "0");
  for (const dialect of ["sqlite", "postgres"])
    writeFileSync(
      join(folder, `src/store/migrations/${number}-next.${dialect}.sql`),
      "create table next_version (id text primary key, name text)",
    );
  const built = spawnSync(process.execPath, ["scripts/build.mjs"], { cwd: folder, encoding: "utf8" });
  if (built.status !== 0) throw new Error(`the next version cannot be built: ${built.stdout}${built.stderr}`);
  newer = join(folder, "dist/drover.js");
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Run {
  readonly status: string;
  readonly exitCode: number | null;
  readonly steps: readonly {
    readonly attempts: readonly { readonly pid: number | null; readonly adopted: boolean }[];
  }[];
}

describe("the next version", () => {
  test("B-119 copies the store, brings it up to date, and adopts what runs; this one then refuses, and goes back with that copy", async () => {
    const home = openHome();
    try {
      const at = (name: string): string => join(home.folder, name);
      await home.json(["up"]);
      await home.json(["loop", "add", "daily", "--cron", "0 4 * * *", "--tz", "UTC", "--", "true"]);
      const { id } = await home.json<{ id: string }>([
        ...["run", "--detach", "--", "sh", "-c"],
        `echo begun >> ${at("marks")}; while [ ! -e ${at("go")} ]; do sleep 0.1; done; exit 7`,
      ]);
      await until(() => existsSync(at("marks")), "it runs");
      const show = (program?: string) => home.json<Run>(["show", id], program === undefined ? {} : { program });
      // It says that it began before the daemon has looked.
      const pid = await until(async () => (await show()).steps[0]?.attempts[0]?.pid, "its process is known");
      await home.json(["down"]);

      await home.json(["up"], { program: newer });
      await until(async () => (await show(newer)).steps[0]?.attempts[0]?.adopted === true, "it is adopted");
      expect((await show(newer)).steps[0]?.attempts).toMatchObject([{ pid }]);
      const copies = readdirSync(at("home/backups"));
      expect(copies).toEqual([
        expect.stringMatching(new RegExp(`^before-${known}-to-${known + 1}-\\d{8}T\\d{6}Z\\.db$`)),
      ]);
      writeFileSync(at("go"), "");
      await until(async () => (await show(newer)).status === "failed", "it has ended");
      expect(await show(newer)).toMatchObject({ exitCode: 7 });
      expect(readFileSync(at("marks"), "utf8")).toBe("begun\n");
      await home.json(["down"], { program: newer });

      const before = home.dump();
      for (const words of [
        ["runs"],
        ["status"],
        ["up"],
        ["loop", "pause", "daily"],
        ["backup"],
        ["run", "--", "true"],
      ]) {
        const refused = await home.refused(4, words);
        expect([words, refused.code, refused.hint]).toEqual([
          words,
          "newer_schema",
          expect.stringContaining("newer drover"),
        ]);
      }
      // What says how things stand says that, and what to do about it.
      const seen = JSON.parse((await home.run(["doctor", "--json"])).out) as {
        findings: readonly { code: string | null }[];
      };
      expect(seen.findings).toContainEqual(
        expect.objectContaining({ code: "store_newer", hint: expect.stringContaining("newer drover") }),
      );
      expect(home.dump()).toBe(before);
      expect(await home.json(["restore", join(at("home/backups"), copies[0] ?? ""), "--yes"])).toMatchObject({
        cancelled: 1,
      });
      expect(await show()).toMatchObject({ status: "cancelled" });
      expect(await home.json(["loop", "show", "daily"])).toMatchObject({ status: "active" });
    } finally {
      await home.run(["down", "--stop-runs"], { program: newer });
      await home.close();
    }
  }, 180_000);

  test("does not touch a store that it cannot copy first", async () => {
    const home = openHome();
    try {
      await home.json(["loop", "add", "daily", "--every", "1d", "--", "true"]);
      const before = home.dump();
      // Where the copies would go there is a file.
      writeFileSync(join(home.folder, "home/backups"), "");
      const refused = await home.refused(2, ["loop", "pause", "daily"], { program: newer });
      expect(refused).toMatchObject({ code: "bad_target", message: expect.stringContaining("not brought up to date") });
      expect(home.dump()).toBe(before);
      await home.json(["loop", "pause", "daily"]);
    } finally {
      rmSync(join(home.folder, "home/backups"), { force: true });
      await home.close();
    }
  });
});
