/** Secrets of an account, of a run, and inherited keys: nowhere under the state and the configuration but in raw logs. */
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Home, openHome, until } from "../e2e/drover.ts";

const canaries = {
  account: "cnry-account-5f0c91b2d7e84a36",
  run: "cnry-run-a81d3f6c2b9047e5",
  inherited: "cnry-inherited-90c4e7d1385b2fa6",
} as const;

/** Raw logs: what the process itself wrote, for its owner alone. */
const RAW = new Set(["out", "err", "output"]);

/**
 * Prints every secret that it was given, whole, and cut in two writes at every offset, on both outputs, as its result,
 * as base64, as its output, and last in an error.
 */
const AGENT = `#!/usr/bin/env node
const keys = [process.env.ACCOUNT_KEY, process.env.RUN_KEY];
for (const key of keys) if (!key) { console.error("a key is missing"); process.exit(9); }
const say = (fd, text) => require("node:fs").writeSync(fd, text);
require("node:fs").readFileSync(0);
for (const key of keys)
  for (const fd of [1, 2])
    for (let at = 1; at < key.length; at++) { say(fd, "x" + key.slice(0, at)); say(fd, key.slice(at) + "y\\n"); }
for (const key of keys) say(1, Buffer.from("key: " + key + ".").toString("base64") + "\\n");
say(1, "inherited: " + (process.env.ANTHROPIC_API_KEY ?? "none") + "\\n");
require("node:fs").writeFileSync(process.env.DROVER_OUTPUT, JSON.stringify({ keys }));
say(2, "failed with " + keys.join(" and ") + "\\n");
process.exit(process.env.FAILS ? 3 : 0);
`;

let home: Home;
const said: string[] = [];

beforeAll(async () => {
  home = openHome({
    prefix: "drover-canaries-",
    env: { ANTHROPIC_API_KEY: canaries.inherited, OPENAI_API_KEY: canaries.inherited },
  });
  const agent = join(home.folder, "agent");
  writeFileSync(agent, AGENT);
  chmodSync(agent, 0o755);
  mkdirSync(join(home.folder, "secrets"), { mode: 0o700 });
  for (const name of ["account", "run"] as const)
    writeFileSync(join(home.folder, "secrets", name), `${canaries[name]}\n`, { mode: 0o600 });
  await home.json(["up"]);
});
afterAll(() => home.close());

const drover = async (args: readonly string[]) => {
  const ended = await home.run(args);
  said.push(ended.out, ended.err);
  return ended;
};

/** Every regular file below a folder. */
function filesBelow(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .map((name) => join(folder, name))
    .filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile() === true);
}

test("B-122 canaries of an account, a run and the daemon's environment are nowhere but in raw logs", async () => {
  const secrets = join(home.folder, "secrets");
  await drover(["account", "add", "custom", "work", "--secret", `ACCOUNT_KEY=file:${secrets}/account`]);
  const target = ["--agent", "custom", "--agent-command", join(home.folder, "agent"), "--account", "work"];
  const words = [...target, "--prompt", "print what you know", "--secret", `RUN_KEY=file:${secrets}/run`];
  const good = await drover(["run", "--json", ...words]);
  expect(good.status, good.err).toBe(0);
  const bad = await drover(["run", "--json", "--env", "FAILS=1", "--on-finish", "cat; exit 1", ...words]);
  expect(bad.status, bad.err).toBe(1);
  await drover(["loop", "add", "canary", "--at", "+0s", ...words]);
  await until(async () => {
    const { items } = await home.json<{ items: { outcome: string | null }[] }>(["loop", "slots", "canary"]);
    return items.some((slot) => slot.outcome === "succeeded");
  }, "the loop has run");

  const runs = [good, bad].map(({ out }) => (JSON.parse(out) as { id: string }).id);
  for (const id of runs) {
    for (const words of [
      ["show"],
      ["logs"],
      ["logs", "--stderr"],
      ["logs", "--raw"],
      ["logs", "--transcript"],
      ["why"],
    ]) {
      await drover([...words, id]);
      await drover([...words, id, "--json"]);
    }
  }
  for (const words of [
    ["events"],
    ["runs"],
    ["loop", "show", "canary"],
    ["account", "show", "custom:work"],
    ["doctor"],
  ])
    await drover([...words, "--json"]);

  // The test can fail: the agent was given both, and printed them.
  const raw = filesBelow(join(home.folder, "home")).filter((path) => RAW.has(basename(path)));
  const printed = raw.map((path) => readFileSync(path, "latin1")).join("\n");
  for (const name of ["account", "run"] as const) expect(printed).toContain(canaries[name]);
  expect(printed, "no key of another provider reaches an agent").toContain("inherited: none");

  const shown = said.join("\n");
  const forms = (canary: string) => [canary, canary.slice(0, -1), canary.slice(1)];
  for (const [name, canary] of Object.entries(canaries))
    for (const form of forms(canary)) expect(shown.includes(form), `${name} is shown: ${form}`).toBe(false);

  await home.json(["down"]);
  for (const path of filesBelow(join(home.folder, "home"))) {
    if (RAW.has(basename(path))) continue;
    const bytes = readFileSync(path, "latin1");
    for (const [name, canary] of Object.entries(canaries))
      for (const form of forms(canary)) expect(bytes.includes(form), `${name} is in ${path}`).toBe(false);
  }
});
