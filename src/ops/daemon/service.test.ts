import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import type { ServiceLook } from "../../core/service.ts";
import { placesOf } from "../places.ts";
import { servicePlanOf, type PlanSources, serviceName } from "./service-plan.ts";
import { plistText, readPlist } from "./service-plist.ts";
import { serviceStateOf, SERVICE_CODES, type ServiceFacts } from "./service-state.ts";
import { readUnit, unitText } from "./service-unit.ts";

const sources = (more: Partial<PlanSources> = {}): PlanSources => ({
  kind: "systemd",
  env: { HOME: "/home/me" },
  places: placesOf({ HOME: "/home/me" }),
  home: "/home/me",
  usualHome: "/home/me",
  node: "/usr/bin/node",
  nodeOptions: ["--max-semi-space-size=2"],
  program: "/usr/local/bin/drover",
  path: "/home/me/.local/bin:/usr/bin:/bin",
  store: "sqlite:drover.db",
  shutdownMs: 20_000,
  restartMs: 5_000,
  realpath: (path) => path,
  ...more,
});
const plan = (more?: Partial<PlanSources>) => servicePlanOf(sources(more)).plan;
const codes = (more: Partial<PlanSources>) => servicePlanOf(sources(more)).warnings.map(({ code }) => code);
const refusal = (more: Partial<PlanSources>): string => {
  try {
    servicePlanOf(sources(more));
  } catch (error) {
    if (error instanceof AppError) return error.code;
    throw error;
  }
  return "none";
};

/** Names of folders that have a meaning somewhere on the way: to systemd, to a shell, to XML. */
const NASTY = [
  "plain",
  "with space",
  "per%cent %h %%",
  "do$llar ${HOME}",
  "quo'te",
  'dou"ble',
  "back\\slash",
  "a;b&c<d>",
  "ünïcode 日本",
  "#hash",
  "-dash",
];
const nasty = fc.oneof(
  fc.constantFrom(...NASTY),
  // What no file name may hold, and control characters, which are refused.
  fc
    .string({ unit: "grapheme", minLength: 1, maxLength: 20 })
    .filter((name) => !/[\u0000-\u001f\u007f/]/.test(name) && !name.startsWith(".")),
);

describe("what is planned", () => {
  test("a path that stays is taken for Node, where its own goes with its version", () => {
    const links: Record<string, string> = {
      "/opt/homebrew/bin/node": "/opt/homebrew/Cellar/node/22.1.0/bin/node",
      "/home/me/.local/share/fnm/aliases/default/bin/node":
        "/home/me/.local/share/fnm/node-versions/v22.1.0/installation/bin/node",
      "/run/user/1/fnm_multishells/7_8/bin/node":
        "/home/me/.local/share/fnm/node-versions/v22.1.0/installation/bin/node",
    };
    const realpath = (path: string) => links[path] ?? path;
    const brew = sources({ node: "/opt/homebrew/Cellar/node/22.1.0/bin/node", realpath });
    expect(servicePlanOf(brew)).toMatchObject({ plan: { node: "/opt/homebrew/bin/node" }, warnings: [] });
    const fnm = sources({
      node: "/home/me/.local/share/fnm/node-versions/v22.1.0/installation/bin/node",
      path: "/run/user/1/fnm_multishells/7_8/bin:/usr/bin",
      env: { PATH: "/run/user/1/fnm_multishells/7_8/bin:/usr/bin" },
      realpath,
    });
    // A session's own folder is in no PATH that outlives it, and programs that ask for node find the one that stays.
    expect(servicePlanOf(fnm)).toMatchObject({
      plan: {
        node: "/home/me/.local/share/fnm/aliases/default/bin/node",
        env: { PATH: "/home/me/.local/share/fnm/aliases/default/bin:/usr/bin" },
      },
      warnings: [],
    });
    expect(codes({ node: "/home/me/.nvm/versions/node/v22.1.0/bin/node" })).toEqual(["service_node_versioned"]);
    expect(codes({ program: "/home/me/.npm/_npx/abc/node_modules/.bin/drover" })).toEqual(["service_program_passing"]);
    // A link to another Node is none of this one's.
    expect(plan({ node: "/usr/bin/node", env: { PATH: "/elsewhere" } }).node).toBe("/usr/bin/node");
  });

  test("what says where everything is goes into it, and nothing else", () => {
    const env = {
      HOME: "/home/me",
      XDG_STATE_HOME: "/data/state",
      XDG_CONFIG_HOME: "rel",
      LANG: "de_DE.UTF-8",
      ANTHROPIC_API_KEY: "secret",
      DROVER_RUN_TOKEN: "secret",
      DROVER_STORE: "postgres://me@db/x",
    };
    const made = plan({ env, places: placesOf(env), store: env.DROVER_STORE });
    expect(made.env).toEqual({
      PATH: "/home/me/.local/bin:/usr/bin:/bin",
      XDG_STATE_HOME: "/data/state",
      DROVER_STORE: "postgres://me@db/x",
      LANG: "de_DE.UTF-8",
      DROVER_SERVICE: made.name,
    });
    for (const text of [unitText(made), plistText(made)]) expect(text).not.toContain("secret");
    expect(plan({ usualHome: "/root" }).env).toMatchObject({ HOME: "/home/me" });
    const own = placesOf({ DROVER_HOME: "/srv/d" });
    expect(plan({ places: own }).env).toMatchObject({ DROVER_HOME: "/srv/d" });
    expect(serviceName(own, "/home/me")).not.toBe(serviceName(placesOf({ DROVER_HOME: "/srv/e" }), "/home/me"));
  });

  test("a password does not go into it, and what no unit can hold is refused", () => {
    for (const store of ["postgres://me:pw@db/x", "postgres://db/x?user=me&password=pw"])
      expect(refusal({ env: { DROVER_STORE: store }, store })).toBe("store_password");
    expect(refusal({ path: "/usr/bin:/a\nExecStartPre=/bin/evil" })).toBe("unfit_path");
    expect(refusal({ program: "/a\u0007/drover" })).toBe("unfit_path");
    expect(codes({ store: "postgres://db/x", env: { PGPASSWORD: "pw" } })).toEqual(["service_lacks_variables"]);
  });

  test("the manager waits longer than we take to go down", () => {
    expect(plan({ shutdownMs: 300_000 }).stopLimitMs).toBeGreaterThan(300_000);
  });
});

describe("files", () => {
  test("B-021 a run that the kernel ends for want of memory takes neither the daemon nor other runs along", () => {
    const lines = unitText(plan()).split("\n");
    expect(lines).toEqual(expect.arrayContaining(["OOMPolicy=continue", "KillMode=process", "Restart=always"]));
  });

  test("what is written is read back, whatever paths hold; a file that was changed is known", () => {
    fc.assert(
      fc.property(nasty, nasty, nasty, (a, b, c) => {
        const made = plan({
          node: `/${a}/node`,
          program: `/${b}/dist/drover.js`,
          path: `/${c}:/usr/bin:/${a}`,
          places: placesOf({ DROVER_HOME: `/${c}` }),
        });
        for (const [write, read] of [
          [unitText, readUnit],
          [plistText, readPlist],
        ] as const) {
          const text = write(made);
          expect(read(text)).toEqual({ ours: true, edited: false, words: [made.node, ...made.args], env: made.env });
          expect(read(`${text}\n`)).toMatchObject({ ours: true, edited: true });
          expect(read(`# mine\n${text}`)).toMatchObject({ ours: true, edited: true });
        }
      }),
    );
    expect(readUnit("[Service]\nExecStart=-/usr/bin/drover up 'a b'\n")).toEqual({
      ours: false,
      edited: false,
      words: ["/usr/bin/drover", "up", "a b"],
      env: {},
    });
  });

  const hasAnalyze = spawnSync("systemd-analyze", ["--version"]).status === 0;
  if (!hasAnalyze) console.warn("skipped: units are not verified, there is no systemd-analyze");
  test.skipIf(!hasAnalyze)("systemd takes every unit without a word", () => {
    const folder = mkdtempSync(join(tmpdir(), "drover-unit-"));
    try {
      for (const [nth, name] of NASTY.entries()) {
        const home = join(folder, name);
        mkdirSync(home);
        const node = join(home, "node");
        writeFileSync(node, "#!/bin/sh\n");
        chmodSync(node, 0o755);
        const made = plan({
          node,
          program: `${home}/drover.js`,
          path: `${home}:/usr/bin`,
          places: placesOf({ DROVER_HOME: home }),
        });
        const file = join(folder, `drover-${nth}.service`);
        writeFileSync(file, unitText(made));
        const { status, stdout, stderr } = spawnSync("systemd-analyze", ["--user", "verify", file], {
          encoding: "utf8",
          env: { ...process.env, XDG_RUNTIME_DIR: folder },
        });
        expect({ name, status, said: stdout + stderr }).toEqual({ name, status: 0, said: "" });
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  const hasPython = spawnSync("python3", ["-c", "import plistlib"]).status === 0;
  if (!hasPython) console.warn("skipped: property lists are not parsed by another program, there is no python3");
  test.skipIf(!hasPython)("another parser reads the same from every property list", () => {
    for (const name of NASTY) {
      const made = plan({
        kind: "launchd",
        node: `/${name}/node`,
        path: `/${name}:/usr/bin`,
        places: placesOf({ DROVER_HOME: `/${name}` }),
      });
      const { status, stdout, stderr } = spawnSync(
        "python3",
        ["-c", "import plistlib, json, sys; print(json.dumps(plistlib.loads(sys.stdin.buffer.read())))"],
        { input: plistText(made), encoding: "utf8" },
      );
      expect({ name, status, stderr }).toEqual({ name, status: 0, stderr: "" });
      expect(JSON.parse(stdout)).toEqual({
        Label: made.name,
        ProgramArguments: [made.node, ...made.args],
        EnvironmentVariables: made.env,
        WorkingDirectory: "/",
        Disabled: true,
        RunAtLoad: true,
        KeepAlive: { SuccessfulExit: false },
        ThrottleInterval: 5,
        AbandonProcessGroup: true,
        ExitTimeOut: 45,
        StandardOutPath: made.outputFile,
        StandardErrorPath: made.outputFile,
      });
    }
  });
});

describe("how it stands", () => {
  const made = plan();
  const look: ServiceLook = {
    fault: null,
    loaded: true,
    file: "/u/drover.service",
    dropIns: [],
    enabled: true,
    state: "active",
    pid: 7,
    result: null,
    restarts: 0,
    stale: false,
    linger: "on",
  };
  const found = readUnit(unitText(made));
  const facts = (more: Partial<ServiceFacts> = {}): ServiceFacts => ({
    kind: "systemd",
    name: "drover",
    file: "/u/drover.service",
    found,
    missing: [],
    plan: made,
    current: true,
    look,
    daemon: { pid: 7, service: "drover" },
    ...more,
  });
  const found_ = (more: Partial<ServiceFacts>) =>
    serviceStateOf(facts(more)).findings.map(({ level, code }) => `${level} ${code}`);

  test("nothing is found of one that is as it should be, nor where none is installed", () => {
    expect(serviceStateOf(facts())).toMatchObject({
      installed: true,
      ours: true,
      enabled: true,
      active: true,
      programMoved: false,
      node: "/usr/bin/node",
      program: "/usr/local/bin/drover",
      findings: [],
    });
    const none = {
      found: null,
      look: { ...look, loaded: false, enabled: false, state: "inactive" as const, linger: "off" as const },
    };
    expect(serviceStateOf(facts({ ...none, daemon: { pid: 1, service: null } }))).toMatchObject({
      installed: false,
      findings: [],
    });
  });

  const cases: readonly (readonly [string, Partial<ServiceFacts>, readonly string[]])[] = [
    [
      "a program that moved",
      { missing: ["/usr/local/bin/drover"], look: { ...look, state: "waiting", restarts: 900 } },
      ["problem service_program_moved"],
    ],
    [
      "one that has failed",
      { look: { ...look, state: "failed", result: "exit-code" }, daemon: null },
      ["problem service_failed"],
    ],
    [
      "one that ends again and again",
      { look: { ...look, state: "waiting", restarts: 3 }, daemon: null },
      ["problem service_failed"],
    ],
    ["one that was killed just now", { look: { ...look, state: "waiting", restarts: 1 }, daemon: null }, []],
    ["a file of somebody else's", { found: { ...found, ours: false }, current: false }, ["warning service_foreign"]],
    ["a file that was changed", { found: { ...found, edited: true }, current: false }, ["note service_edited"]],
    ["a file of another version", { current: false }, ["note service_outdated"]],
    ["one that was stopped", { look: { ...look, state: "inactive" }, daemon: null }, ["warning service_stopped"]],
    [
      "a daemon beside it",
      { look: { ...look, state: "inactive" }, daemon: { pid: 9, service: null } },
      ["warning service_beside"],
    ],
    ["one that is not enabled", { look: { ...look, enabled: false } }, ["note service_not_enabled"]],
    ["one that ends with the session", { look: { ...look, linger: "off" } }, ["note service_linger_off"]],
    ["a manager that read another file", { look: { ...look, stale: true } }, ["warning service_stale"]],
    [
      "a manager that cannot be asked",
      { look: { ...look, fault: "no bus", state: "inactive", enabled: false }, daemon: null },
      ["warning service_unreachable"],
    ],
    ["another installation", { plan: { ...made, program: "/opt/drover" } }, ["warning service_other_program"]],
    [
      "another PATH",
      { plan: { ...made, env: { ...made.env, PATH: `${made.env["PATH"]}:/opt/bin` } } },
      ["note service_path_differs"],
    ],
    [
      "another store",
      { plan: { ...made, env: { ...made.env, DROVER_STORE: "sqlite:/x" } } },
      ["warning service_other_store"],
    ],
  ];
  test.each(cases)("%s", (_what, more, expected) => {
    expect(found_(more)).toEqual(expected);
  });

  test("every code is planted above, and none else is said", () => {
    const said = cases.flatMap(([, , expected]) => expected.map((one) => one.split(" ")[1]));
    expect(new Set(said)).toEqual(new Set(Object.keys(SERVICE_CODES)));
  });

  test("what cannot be asked is not told as known", () => {
    expect(serviceStateOf(facts({ look: { ...look, fault: "no bus" } }))).toMatchObject({
      enabled: null,
      active: null,
      state: null,
    });
  });
});
