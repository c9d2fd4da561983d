/** Backups, and what is made of them, through the built program. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { type Home, openHome, until } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

const at = (...parts: string[]): string => join(home.folder, ...parts);
const state = (...parts: string[]): string => at("home", ...parts);
const replacedFolders = (): string[] => readdirSync(state()).filter((name) => name.startsWith("replaced-"));
const partials = (folder: string): string[] => readdirSync(folder).filter((name) => name.includes("partial"));

interface Backup {
  readonly file: string;
  readonly contents: { readonly loops: number; readonly runs: number };
  readonly removed: readonly string[];
}
interface Restored {
  readonly cancelled: number;
  readonly atWork: number;
  readonly missed: number;
  readonly replaced: string | null;
}
describe("backup", () => {
  test("a copy of a store at work is whole, the owner's alone, and leaves nothing else behind", async () => {
    await home.json(["up"]);
    const { id } = await home.json<{ id: string }>(["run", "--detach", "--", "sleep", "600"]);
    await until(async () => (await home.json<{ status: string }>(["show", id])).status === "running", "it runs");
    const made = await home.json<Backup>(["backup"]);
    expect(made.contents).toMatchObject({ loops: 0, runs: 1 });
    expect(made.file).toMatch(/\/home\/backups\/manual-\d{8}T\d{6}Z\.db$/);
    expect(statSync(made.file).mode & 0o777).toBe(0o600);
    expect(readdirSync(state("backups"))).toHaveLength(1);
    const copy = openSqlite(made.file, { readOnly: true });
    expect(copy.pragma("integrity_check")).toBe("ok");
    copy.close();
  });

  test("the newest of a reason stay; other reasons and named copies are not touched", async () => {
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    await home.json(["backup", "--reason", "other"]);
    await home.json(["backup", state("backups", "mine.db")]);
    for (const [nth, gone] of [0, 0, 1].entries())
      expect((await home.json<Backup>(["backup", "--keep", "2"])).removed, `${nth}`).toHaveLength(gone);
    const names = readdirSync(state("backups"));
    expect(names.filter((name) => name.startsWith("manual-"))).toHaveLength(2);
    expect(names).toHaveLength(4);
  });

  test("it replaces nothing, and says in words what keeps it from being made", async () => {
    expect((await home.refused(5, ["backup"])).code).toBe("no_store");
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    writeFileSync(at("there.db"), "precious");
    expect((await home.refused(4, ["backup", "there.db"])).code).toBe("target_exists");
    expect((await home.refused(3, ["backup", "unmounted/there.db"])).code).toBe("folder_not_found");
    expect(existsSync(at("unmounted"))).toBe(false);
    expect(readFileSync(at("there.db"), "utf8")).toBe("precious");
    expect((await home.refused(2, ["backup", "there.db/below.db"])).code).toBe("bad_target");
    expect((await home.refused(2, ["backup", "--reason", "A/../b"])).code).toBe("bad_reason");
    expect(
      (await home.refused(2, ["backup"], { env: { DROVER_STORE: "postgres://me:word@h/db?schema=s" } })).hint,
    ).toBe("Run pg_dump --format=custom --schema=s --file=drover.dump 'postgres://me:***@h/db'");
    expect(partials(home.folder)).toEqual([]);
  });

  test.skipIf(!existsSync("/dev/full") || process.getuid?.() !== 0)(
    "a disk that fills up is said so, and nothing half written is left",
    async () => {
      await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
      const small = at("small");
      mkdirSync(small);
      const { spawnSync } = await import("node:child_process");
      if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", small]).status !== 0)
        return void process.stderr.write("skipped: no file system can be mounted here\n");
      try {
        expect(await home.refused(5, ["backup", join(small, "x.db")])).toMatchObject({
          code: "disk_full",
          path: join(small, "x.db"),
        });
        expect(readdirSync(small)).toEqual([]);
      } finally {
        spawnSync("umount", [small]);
      }
    },
  );
});

describe("restore", () => {
  const loops = async (): Promise<readonly string[]> =>
    (await home.json<{ items: { name: string }[] }>(["loop", "ls"])).items.map(({ name }) => name);
  /** A home with a backup of one loop, to which another was added since. */
  async function history(): Promise<string> {
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    const { file } = await home.json<Backup>(["backup", "saved.db"]);
    await home.json(["loop", "add", "b", "--every", "1h", "--", "true"]);
    return file;
  }

  test("a wiped home gets the same history back", async () => {
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    await home.json(["run", "--", "true"]);
    await home.json(["down"]);
    const before = await home.json(["runs"]);
    const { file } = await home.json<Backup>(["backup", "saved.db"]);
    rmSync(state(), { recursive: true });
    expect(await home.json(["restore", file])).toMatchObject({ cancelled: 0, missed: 0, replaced: null });
    expect(await home.json(["runs"])).toEqual(before);
    expect(await home.json(["loop", "show", "a"])).toMatchObject({ name: "a", status: "active" });
    // The loop belongs to the host that it is on now.
    expect(await home.json(["loop", "run", "a", "--wait"])).toMatchObject({
      source: "ad_hoc",
      run: { status: "succeeded" },
    });
  });

  test("what was there is kept, and comes back the same way", async () => {
    const file = await history();
    expect((await home.refused(2, ["restore", file])).code).toBe("needs_yes");
    const dry = await home.json<Restored>(["restore", file, "--dry-run"]);
    expect(dry).toMatchObject({ dryRun: true, replaced: null });
    expect(await loops()).toEqual(["a", "b"]);
    const { replaced } = await home.json<Restored>(["restore", file, "--yes"]);
    expect(await loops()).toEqual(["a"]);
    await home.json(["restore", join(replaced ?? "", "drover.db"), "--yes"]);
    expect(await loops()).toEqual(["a", "b"]);
    expect(partials(state())).toEqual([]);
  });

  test("nothing starts because of it: what was at work is cancelled, once, and can be started again", async () => {
    await home.json(["up"]);
    const { id } = await home.json<{ id: string }>([
      "run",
      "--detach",
      "--",
      "sh",
      "-c",
      `echo x >> ${at("marks")}; sleep 600`,
    ]);
    await until(() => existsSync(at("marks")), "it runs");
    const { file } = await home.json<Backup>(["backup"]);
    expect((await home.refused(4, ["restore", file, "--yes"])).code).toBe("daemon_up");
    await home.json(["down"]);
    expect((await home.refused(4, ["restore", file, "--yes"])).code).toBe("attempts_at_work");
    await home.json(["up"]);
    await home.json(["cancel", id]);
    await home.json(["down"]);
    expect(await home.json(["restore", file, "--yes"])).toMatchObject({ cancelled: 1, atWork: 1 });
    await home.json(["up"]);
    expect(await home.json(["show", id])).toMatchObject({ status: "cancelled", reason: "restored" });
    expect((await home.json<{ sentence: string }>(["why", id])).sentence).toContain("restore of a backup");
    expect((await home.json<{ runs: unknown }>(["status"])).runs).toMatchObject({ running: 0, queued: 0, waiting: 0 });
    expect(readFileSync(at("marks"), "utf8")).toBe("x\n");
  });

  test.each(["staged", "settled", "emptied", "aside", "replaced"])(
    "a crash when it is %s leaves one store or the other, whole, and the next restore works",
    async (step) => {
      const file = await history();
      const killed = await home.run(["restore", file, "--yes"], { env: { DROVER_TEST_KILL: step } });
      expect(killed.signal).toBe("SIGKILL");
      expect(await loops()).toEqual(step === "replaced" ? ["a"] : ["a", "b"]);
      const store = openSqlite(state("drover.db"), { readOnly: true });
      expect(store.pragma("integrity_check")).toBe("ok");
      store.close();
      await home.json(["restore", file, "--yes"]);
      expect(await loops()).toEqual(["a"]);
      expect(partials(state())).toEqual([]);
      // One name for each store that was replaced; a name of the one in place would change with it.
      for (const name of replacedFolders()) expect(statSync(state(name, "drover.db")).nlink).toBe(1);
      expect(replacedFolders()).toHaveLength(step === "replaced" ? 2 : 1);
    },
  );

  test("what is no whole backup of ours is refused in words, and the store stays as it is", async () => {
    const file = await history();
    const dump = home.dump();
    const other = (name: string, make: (path: string) => void): string => {
      copyFileSync(file, at(name));
      make(at(name));
      return at(name);
    };
    const pages = statSync(file).size / 4096;
    const foreign = openSqlite(at("foreign.db"));
    foreign.exec("create table a (b)");
    foreign.close();
    const changed = (text: string) => (path: string) => {
      const connection = openSqlite(path);
      connection.exec(text);
      connection.close();
    };
    const refusals: readonly (readonly [number, string, string])[] = [
      [2, "backup_damaged", other("half.db", (path) => truncateSync(path, Math.floor(pages / 2) * 4096))],
      [2, "backup_damaged", other("odd.db", (path) => truncateSync(path, Math.floor(pages / 2) * 4096 + 100))],
      [2, "backup_damaged", other("empty.db", (path) => truncateSync(path, 0))],
      [2, "not_a_backup", other("text.db", (path) => writeFileSync(path, "loops: []\n".repeat(1_000)))],
      [2, "not_a_backup", at("foreign.db")],
      [4, "newer_schema", other("newer.db", changed("pragma user_version = 9999"))],
      [3, "file_not_found", at("absent.db")],
      [2, "not_a_file", home.folder],
      [2, "same_file", state("drover.db")],
    ];
    for (const [exit, code, path] of refusals)
      expect((await home.refused(exit, ["restore", path, "--yes"])).code, path).toBe(code);
    expect(home.dump()).toBe(dump);
    expect(partials(state())).toEqual([]);
    expect(replacedFolders()).toEqual([]);
  });

  test("B-072 pages that a killed daemon left damaged are served by nobody: what is refused names the copies, and one takes their place", async () => {
    const file = await history();
    await home.json(["up"]);
    const { daemon } = await home.json<{ daemon: { pid: number } }>(["status"]);
    process.kill(daemon.pid, "SIGKILL");
    await until(
      async () => (await home.json<{ daemon: { state: string } }>(["status"])).daemon.state === "down",
      "it is gone",
    );
    const log = readFileSync(state("drover.db-wal"));
    const connection = openSqlite(state("drover.db"));
    connection.exec("pragma wal_checkpoint(truncate)");
    const [first] = connection.query("select rootpage from sqlite_schema where name = 'runs_ended'", [], 0).rows;
    connection.close();
    // A page that the log does not hold and no start reads: only a look at all of them finds it.
    writeFileSync(state("drover.db-wal"), log);
    const { rootpage } = first as { rootpage: number };
    const damaged = readFileSync(state("drover.db")).fill(0x5a, (rootpage - 1) * 4_096, rootpage * 4_096);
    writeFileSync(state("drover.db"), damaged);
    for (const words of [["up"], ["loop", "pause", "a"], ["run", "--", "true"]]) {
      const refused = await home.refused(5, words);
      expect([words, refused.code, refused.hint]).toEqual([
        words,
        "store_corrupt",
        expect.stringContaining("drover restore"),
      ]);
      expect(refused.hint).toContain("backups/");
    }
    expect(readFileSync(state("drover.db")).equals(damaged)).toBe(true);
    const { replaced } = await home.json<Restored>(["restore", file, "--yes"]);
    expect(readFileSync(join(replaced ?? "", "drover.db")).equals(damaged)).toBe(true);
    expect(await loops()).toEqual(["a"]);
    await home.json(["up"]);
    expect(await home.json(["run", "--", "true"])).toMatchObject({ status: "succeeded" });
  }, 180_000);

  test("a damaged store is replaced, and kept as it lay there", async () => {
    const file = await history();
    writeFileSync(state("drover.db"), "not a database any more".repeat(1_000));
    const { replaced } = await home.json<Restored>(["restore", file, "--yes"]);
    expect(await loops()).toEqual(["a"]);
    expect(readFileSync(join(replaced ?? "", "drover.db"), "utf8")).toContain("not a database any more");
  });
});
