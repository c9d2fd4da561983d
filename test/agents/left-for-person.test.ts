/** A daemon that ends when it is idle does not wait for people: it leaves, says so, and the next one goes on. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Home, openHome, until } from "../e2e/drover.ts";
import type { RunSeen } from "./harness.ts";

const STAND_IN = resolve(fileURLToPath(import.meta.url), "../stand-in.mjs");

interface Status {
  readonly daemon: { readonly state: string; readonly mode: string | null };
  readonly runs: { readonly waiting: number; readonly queued: number; readonly forPerson: number };
  readonly warnings: readonly { readonly code: string; readonly message: string; readonly hint: string }[];
}

let home: Home;
let mode: string;
beforeAll(() => {
  home = openHome({ prefix: "drover-left-" });
  const bin = join(home.folder, "bin"); // one of a user's own folders, which a daemon looks into by itself
  mkdirSync(bin);
  mkdirSync(join(home.folder, "stand-in"));
  symlinkSync(STAND_IN, join(home.folder, "stand-in/claude"));
  mode = join(home.folder, "mode");
  // Whether it is logged in changes while its run waits.
  const script = `#!/bin/sh\nSTAND_IN_MODE=$(cat ${mode}) exec ${process.execPath} ${join(home.folder, "stand-in/claude")} "$@"\n`;
  writeFileSync(join(bin, "claude"), script, { mode: 0o755 });
});
afterAll(() => home.close());

const PATH = () => `${join(home.folder, "bin")}${delimiter}${process.env["PATH"] ?? ""}`;
const status = () => home.json<Status>(["status"]);
const gone = () => until(async () => (await status()).daemon.state === "down", "the daemon has left");

test("a login that is refused: it leaves, status and its log say for whom, and the next daemon goes on", async () => {
  writeFileSync(mode, "401");
  const words = ["run", "--json", "--agent", "claude", "--cwd", home.folder, "--worktree", "off", "--prompt", "do it"];
  const waits = await home.run(words, { env: { PATH: PATH() } });
  expect(waits.status, waits.err).toBe(7);
  expect(waits.err).toContain("after that `drover up` goes on with it");
  const { id } = JSON.parse(waits.out) as RunSeen;
  await gone();
  const left = await status();
  expect(left.runs).toMatchObject({ waiting: 1, queued: 0, forPerson: 1 });
  expect(left.warnings.map(({ code }) => code)).toEqual(["left_for_person", "account_held"]);
  expect((await home.run(["status"])).out).toContain("a run waits for a person");
  expect(readFileSync(join(home.folder, "home/logs/daemon.log"), "utf8")).toContain("left_for_person");
  expect(await home.json(["show", id])).toMatchObject({ status: "waiting", reason: "account" });

  // Another run under the same login changes nothing about that: its daemon leaves as well, and who waits for it is told.
  const patient = [...words.slice(0, 2), "--wait-limit", "1h", ...words.slice(2)];
  const more = await home.run(patient, { env: { PATH: PATH() } });
  expect(more.status, more.err).toBe(7);
  expect(more.err).toContain("after that `drover up` goes on with it");
  const other = (JSON.parse(more.out) as RunSeen).id;
  await gone();
  expect((await status()).runs).toMatchObject({ waiting: 1, queued: 1, forPerson: 2 });

  writeFileSync(mode, "ok");
  expect(await home.json(["account", "release", "claude:default"])).toMatchObject({
    woken: 1,
    warnings: [{ code: "daemon_down", hint: "drover up" }],
  });
  expect((await status()).runs).toMatchObject({ waiting: 0, queued: 2, forPerson: 0 });
  await home.json(["up", "--until-idle"], { env: { PATH: PATH() } });
  for (const one of [id, other])
    await until(async () => (await home.json<RunSeen>(["show", one])).status === "succeeded", `${one} goes on`);
  await gone();
  expect((await status()).warnings.map(({ code }) => code)).toEqual([]);
});

test("a limit that ends by itself is no reason to leave", async () => {
  const reset = Math.floor(Date.now() / 1000) + 3600;
  writeFileSync(mode, `usage-limit ${reset}`);
  const words = ["run", "--json", "--agent", "claude", "--cwd", home.folder, "--worktree", "off", "--prompt", "do it"];
  const waits = await home.run(words, { env: { PATH: PATH() } });
  expect(waits.status, waits.err).toBe(8);
  expect(waits.err).toContain("it goes on in the daemon");
  expect((await status()).runs).toMatchObject({ waiting: 1, forPerson: 0 });
  // That it stays for hours is held by a clock that is moved: src/engine/agents.test.ts.
  expect((await status()).daemon).toMatchObject({ state: "up", mode: "until_idle" });
  await home.json(["cancel", (JSON.parse(waits.out) as RunSeen).id]);
  await gone();
});
