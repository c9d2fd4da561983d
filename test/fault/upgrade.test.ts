/** An upgrade replaces the files of the installation while the daemon runs. */
import { cpSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { builtProgram, install, until } from "./installation.ts";

test("B-119 a daemon whose installation is gone still does all that it is asked", async () => {
  const root = join(dirname(builtProgram), "..");
  const folder = mkdtempSync(join(tmpdir(), "drover-old-"));
  cpSync(dirname(builtProgram), join(folder, "dist"), { recursive: true });
  cpSync(join(root, "package.json"), join(folder, "package.json"));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const at = install({ program: join(folder, "dist", "drover.js") });
  try {
    expect((await at.run("up")).status).toBe(0);
    rmSync(folder, { recursive: true });
    at.program = builtProgram;
    // Each of these is a module that this daemon has not used before.
    await at.json(
      "loop",
      "add",
      "tick",
      "--every",
      "1s",
      "--expect",
      "output",
      "--secret",
      "WORD=cmd:echo hidden-word",
      "--shell",
      "echo $WORD",
    );
    await until("a slot to succeed", async () =>
      (await at.json<{ items: { outcome: string | null }[] }>("loop", "slots", "tick")).items.some(
        (slot) => slot.outcome === "succeeded",
      ),
    );
    for (const words of [
      ["loop", "run", "tick", "--detach"],
      ["loop", "edit", "tick", "--cron", "0 4 * * *", "--tz", "Europe/Rome"],
      ["loop", "rename", "tick", "tock"],
      ["loop", "pause", "tock"],
      ["loop", "resume", "tock"],
      ["loop", "archive", "tock"],
      ["loop", "unarchive", "tock"],
    ])
      expect(await at.run(...words), words.join(" ")).toMatchObject({ status: 0 });
    const { id } = await at.json<{ id: string }>("run", "--detach", "--shell", "sleep 300");
    await until("it to run", async () => (await at.json<{ status: string }>("show", id)).status === "running");
    expect(await at.run("cancel", id)).toMatchObject({ status: 0 });
    expect(await at.run("retry", id, "--detach")).toMatchObject({ status: 0 });
    expect(await at.run("down", "--stop-runs", "--drain", "0s")).toMatchObject({ status: 0 });
    expect(at.marked()).toEqual([]);
  } finally {
    await at.close();
  }
});
