import { userInfo } from "node:os";
import { expect, test } from "vitest";
import { defaultLimits } from "../../core/limits.ts";
import { placesOf } from "../places.ts";
import { readSettings, storeFileOf, withoutPassword } from "./settings.ts";

const places = placesOf({ DROVER_HOME: "/h" });
const read = (text: string | null, env = {}) => readSettings(env, places, text);

test("without a file everything is as usual", async () => {
  const { settings, problems } = await read(null);
  expect(problems).toEqual([]);
  expect(settings.limits).toEqual({ ...defaultLimits, agentCap: settings.limits.agentCap });
  expect(settings.store).toBe("sqlite:/h/drover.db");
  expect(settings.all.every((one) => one.source === "default")).toBe(true);
  expect((await read("\n# nothing\n")).problems).toEqual([]);
});

test("each value is read in its unit, and written back as it is read", async () => {
  const { settings, problems } = await read(
    "store: sqlite:other.db\nlimits:\n  leaseMs: 90s\n  minFreeBytes: 500MB\n  passGrants: 7\n  drainMs: 1500\ncaps:\n  commands: 3\n  agents: 1\n",
  );
  expect(problems).toEqual([]);
  expect(settings.limits).toMatchObject({
    leaseMs: 90_000,
    minFreeBytes: 500_000_000,
    passGrants: 7,
    drainMs: 1_500,
    commandCap: 3,
    agentCap: 1,
  });
  expect(settings.all.find((one) => one.key === "limits.drainMs")).toEqual({
    key: "limits.drainMs",
    value: 1_500,
    text: "1s500ms",
    source: "file",
  });
  expect(storeFileOf(settings.store, places)).toBe("/h/other.db");
});

test("the environment wins over the file", async () => {
  const { settings } = await read("store: sqlite:/a.db\n", { DROVER_STORE: "sqlite:/b.db" });
  expect(settings.store).toBe("sqlite:/b.db");
  expect(settings.all[0]).toMatchObject({ key: "store", source: "environment" });
});

test("every fault is found, with its line, and the value stays what it was", async () => {
  const { settings, problems } = await read(
    "limits:\n  leaseMs: 0\n  renewMs: x\n  watchMs: [1]\n  nothing: 1\ncaps: many\nstore: 5\nlimits2: {}\n",
  );
  expect(problems.map(({ level, line, key }) => `${level} ${line} ${key}`)).toEqual([
    "error 6 caps",
    "error 2 limits.leaseMs",
    "error 3 limits.renewMs",
    "error 4 limits.watchMs",
    "warning 5 limits.nothing",
    "error 7 store",
    "warning 8 limits2",
  ]);
  expect(settings.limits.leaseMs).toBe(defaultLimits.leaseMs);
});

test("a cap under both of its names, a key twice, and what is no YAML are faults", async () => {
  expect((await read("limits:\n  commandCap: 1\ncaps:\n  commands: 2\n")).problems).toMatchObject([
    { level: "error", line: 4 },
  ]);
  expect((await read("store: a\nstore: b\n")).problems).toMatchObject([{ level: "error", line: 2 }]);
  expect((await read("a: [")).problems[0]).toMatchObject({ level: "error" });
  expect((await read("- 1\n")).problems[0]).toMatchObject({ level: "error", line: 1 });
});

test("a password is shown to nobody", () => {
  expect(withoutPassword("postgres://me:secret@host/db")).toBe("postgres://me:***@host/db");
  expect(withoutPassword("postgres://host/db")).toBe("postgres://host/db");
});

test("places follow DROVER_HOME, then the XDG folders, then the usual ones", () => {
  expect(placesOf({ DROVER_HOME: "/h/../x" })).toMatchObject({
    state: "/x",
    configFile: "/x/config.yaml",
    socket: "/x/drover.sock",
    home: "/x",
  });
  expect(placesOf({ HOME: "/u", XDG_CONFIG_HOME: "/c", XDG_STATE_HOME: "rel" })).toMatchObject({
    configFile: "/c/drover/config.yaml",
    state: "/u/.local/state/drover",
    socket: "/u/.local/state/drover/drover.sock",
  });
  const first = placesOf({ HOME: "/u", XDG_RUNTIME_DIR: "/run/user/1" });
  const second = placesOf({ HOME: "/v", XDG_RUNTIME_DIR: "/run/user/1" });
  expect(first.socket).toMatch(/^\/run\/user\/1\/drover\/[0-9a-f]{12}\.sock$/);
  expect(second.socket).not.toBe(first.socket);
  expect(() => placesOf({ DROVER_HOME: "relative" })).toThrow(/absolute/);
});

test("no place is relative: an empty or relative home is the one that the system has for this user", () => {
  const { homedir } = userInfo();
  for (const HOME of [undefined, "", "rel", "."])
    for (const relative of [undefined, "", "rel"]) {
      const env = {
        HOME,
        DROVER_HOME: "",
        XDG_STATE_HOME: relative,
        XDG_CONFIG_HOME: relative,
        XDG_RUNTIME_DIR: relative,
      };
      const { home, ...places } = placesOf(env);
      expect(home).toBeNull();
      for (const [name, path] of Object.entries(places)) expect([name, path?.startsWith("/")]).toEqual([name, true]);
      expect(places.state).toBe(`${homedir}/.local/state/drover`);
    }
});

test("a socket's path is never longer than the kernel takes", () => {
  const { socket } = placesOf({ DROVER_HOME: `/${"d".repeat(200)}` });
  expect(Buffer.byteLength(socket)).toBeLessThanOrEqual(103);
});
