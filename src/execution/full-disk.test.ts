import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { commandOf } from "../../test/drafts.ts";
import { sh, until } from "../../test/fixtures/hostile/arena.ts";
import type { Launch, Spawner } from "../core/ports.ts";
import { ATTEMPT_MARK } from "./processes.ts";
import { openSpawner } from "./spawner.ts";

const mayMount = process.platform === "linux" && process.getuid?.() === 0;

// A file system of 128 KiB of its own, which only root may mount.
describe.skipIf(!mayMount)("a full disk", () => {
  let disk: string;
  let cwd: string;
  let spawner: Spawner;
  beforeEach(() => {
    disk = mkdtempSync(join(tmpdir(), "drover-full-"));
    cwd = mkdtempSync(join(tmpdir(), "drover-work-"));
    execFileSync("/bin/mount", ["-t", "tmpfs", "-o", "size=128k", "tmpfs", disk]);
    spawner = openSpawner({ runsFolder: join(disk, "runs"), log: () => {}, cgroups: false });
  });
  afterEach(async () => {
    await spawner.close();
    execFileSync("/bin/umount", ["-l", disk]);
    rmSync(disk, { recursive: true });
    rmSync(cwd, { recursive: true });
  });

  const fill = () => {
    for (let i = 0; ; i++) {
      try {
        writeFileSync(join(disk, `filler-${i}`), Buffer.alloc(4096));
      } catch {
        rmSync(join(disk, `filler-${i}`), { force: true });
        if (statfsSync(disk).bavail === 0) return;
      }
    }
  };
  const free = () => {
    for (let i = 0; i < 64; i++) rmSync(join(disk, `filler-${i}`), { force: true });
  };
  const launch = (folder: string, script: string): Launch => ({
    folder,
    input: "",
    variables: { [ATTEMPT_MARK]: folder.split(".")[0] ?? "" },
    target: commandOf(sh(script), { cwd }),
  });
  const judge = (folder: string, plant: boolean) => spawner.judge({ folder, bootId: spawner.bootId, plant });

  test("before the folder is made: prepare says so and leaves nothing", async () => {
    fill();
    await expect(spawner.prepare({ ...launch("att_full.1", "true"), input: "x".repeat(5000) })).rejects.toMatchObject({
      code: "no_space",
      kind: "unreachable",
    });
    free();
    await spawner.prepare(launch("att_full.1", "true"));
  });

  test("at the daemon's own start: it comes up, and starts nothing until there is room", async () => {
    await spawner.close();
    rmSync(join(disk, "runs"), { recursive: true });
    mkdirSync(join(disk, "runs/ended"), { recursive: true });
    fill();
    const log: string[] = [];
    spawner = openSpawner({ runsFolder: join(disk, "runs"), log: (line) => log.push(line), cgroups: false });
    expect(log.join()).toMatch(/no space/);
    await expect(spawner.prepare(launch("att_full.1", "true"))).rejects.toMatchObject({ code: "no_space" });
    free();
    await spawner.prepare(launch("att_full.2", "exit 4"));
    await spawner.ask("att_full.2");
    await until("it ends", async () => (await judge("att_full.2", false)).kind === "ended");
  });

  test("B-075 before the ticket: the command never starts, the tombstone needs no room, and the reason is told", async () => {
    await spawner.prepare(launch("att_full.1", `echo ran >${join(cwd, "ran")}`));
    fill();
    await spawner.ask("att_full.1");
    // The shim leaves when it cannot write its identity; until the tombstone stands, nothing is decided.
    const judgement = await until("it is judged", async () => {
      const found = await judge("att_full.1", true);
      return found.kind === "never_started" && found.why === "no space" ? found : found.kind === "live" ? null : found;
    });
    expect(judgement.kind).toBe("never_started");
    free();
    expect(await judge("att_full.1", true)).toMatchObject({ kind: "never_started" });
    expect(() => statfsSync(join(cwd, "ran"))).toThrow();
  });

  test("before its end: the exit is recorded all the same, because the record has its place already", async () => {
    await spawner.prepare(
      launch(
        "att_full.1",
        `i=0; while [ ! -e ${join(cwd, "go")} ] && [ $i -lt 1000 ]; do i=$((i+1)); sleep 0.02; done; echo lost; exit 3`,
      ),
    );
    await spawner.ask("att_full.1");
    await until("it runs", async () => {
      const found = await judge("att_full.1", false);
      return found.kind === "live" && found.started;
    });
    fill();
    writeFileSync(join(cwd, "go"), "");
    const end = await until("it ends", async () => {
      const found = await judge("att_full.1", false);
      return found.kind === "ended" ? found : null;
    });
    expect(end.exit).toBe(3);
  });
});

test("a runs folder that cannot be made is an error of its own, not a crash later", () => {
  const place = mkdtempSync(join(tmpdir(), "drover-place-"));
  writeFileSync(join(place, "file"), "");
  try {
    expect(() => openSpawner({ runsFolder: join(place, "file", "runs"), log: () => {} })).toThrow(/cannot be used/);
    mkdirSync(join(place, "runs"));
  } finally {
    rmSync(place, { recursive: true });
  }
});
