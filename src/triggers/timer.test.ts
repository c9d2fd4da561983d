import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { readTimer, serviceNameOf, type TimerSurroundings } from "./timer.ts";
import { readUnit } from "./unit-file.ts";

const around: TimerSurroundings = {
  system: false,
  user: "ann",
  uid: 1000,
  home: "/home/ann",
  hostName: "box.example.org",
  env: {},
  isZone: (zone) => /^(UTC|Europe\/Rome)$/.test(zone),
  clockChanges: (zone) => zone === "Europe/Rome",
  readFile: () => null,
};
const unitOf = (text: string) => readUnit([{ path: "unit", bytes: new TextEncoder().encode(text) }]);
const SERVICE = "[Service]\nExecStart=/bin/true";
const read = (
  timer: string,
  service: string | null = SERVICE,
  more: Partial<TimerSurroundings> = {},
  name = "backup.timer",
) => {
  const unit = unitOf(timer);
  return readTimer(
    { name, unit, serviceName: serviceNameOf(unit, name), service: service === null ? null : unitOf(service) },
    { ...around, ...more },
  );
};
const loops = (...all: Parameters<typeof read>) => {
  const found = read(...all);
  expect(found.filter(({ kind }) => kind === "problem" || kind === "left")).toEqual([]);
  return found.flatMap(({ loop, notes }) => (loop === null ? [] : [{ ...loop, notes }]));
};
const loopOf = (service: string, more: Partial<TimerSurroundings> = {}, name = "backup.timer") => {
  const [loop] = loops("[Timer]\nOnCalendar=daily", `[Service]\n${service}`, more, name);
  return loop as NonNullable<typeof loop>;
};
const reasonOf = (service: string, more: Partial<TimerSurroundings> = {}) => {
  const [only] = read("[Timer]\nOnCalendar=daily", `[Service]\n${service}`, more);
  expect(only?.kind).toBe("left");
  return only?.reason;
};

describe("triggers", () => {
  test("each is a loop of its own, with its line", () => {
    const found = read("[Timer]\nOnCalendar=Mon 02:30\nOnCalendar=*-*-01 5:0 UTC\nOnUnitActiveSec=90\n");
    expect(found.map(({ line, loop }) => [line, loop?.name, loop?.schedule])).toEqual([
      [2, "backup", { kind: "cron", expression: "30 2 * * 1", zone: null }],
      [3, "backup", { kind: "cron", expression: "0 5 1 * *", zone: "UTC" }],
      [4, "backup", { kind: "interval", everyMs: 90_000 }],
    ]);
  });

  test("Persistent is catch-up, a random delay is jitter", () => {
    expect(loops("[Timer]\nOnCalendar=daily\nPersistent=yes\nRandomizedDelaySec=5min")[0]?.policy).toEqual({
      catchUp: "latest",
      jitterMs: 300_000,
      labels: ["systemd"],
    });
    expect(loops("[Timer]\nOnCalendar=daily")[0]?.policy).toEqual({ catchUp: "none", labels: ["systemd"] });
    // Monotonic timers make up for nothing, whatever Persistent says; a jitter has to fit into the period.
    const [every] = loops("[Timer]\nOnUnitActiveSec=1min\nPersistent=yes\nRandomizedDelaySec=5min");
    expect(every?.policy).toEqual({ catchUp: "none", labels: ["systemd"] });
    expect(every?.notes).toEqual([expect.stringContaining("not shorter than its period")]);
  });

  test("an empty trigger forgets all triggers before it", () => {
    expect(loops("[Timer]\nOnCalendar=daily\nOnUnitActiveSec=5\nOnCalendar=\nOnCalendar=hourly")).toHaveLength(1);
  });

  test("a start after boot is none by itself, and told beside a period", () => {
    expect(read("[Timer]\nOnBootSec=5min")).toMatchObject([
      { kind: "left", reason: expect.stringContaining("once after") },
    ]);
    expect(read("[Timer]\nOnBootSec=5min\nOnUnitActiveSec=1h").map(({ kind }) => kind)).toEqual(["setting", "loop"]);
    expect(loops("[Timer]\nOnUnitInactiveSec=1h")[0]?.notes).toEqual([expect.stringContaining("end of the last run")]);
  });

  test.each([
    ["OnCalendar=*-*-* 25:00", "problem", "out of range"],
    ["OnCalendar=daily Mars/Base", "problem", "time zone"],
    ["OnUnitActiveSec=soon", "problem", "no span"],
    ["OnUnitActiveSec=1ms", "left", "from a second"],
    ["OnUnitActiveSec=infinity", "left", "from a second"],
    ["OnCalendar=Mon *-*-13", "left", "at once"],
    ["OnCalendar=*-02-30", "left", "never fires"],
    ["Persistent=yes", "left", "no trigger"],
  ])("%s is a %s: %s", (line, kind, part) => {
    const found = read(`[Timer]\n${line}`).find((one) => one.kind === kind);
    expect(found).toMatchObject({ reason: expect.stringContaining(part), loop: null });
    expect(found?.hint).not.toBeNull();
  });

  test("what a timer has that a loop has not is told", () => {
    const notes = read("[Timer]\nOnCalendar=daily\nWakeSystem=yes\nAccuracySec=1s\nOnClockChange=yes").map(
      (one) => one.notes,
    );
    expect(notes.slice(1)).toEqual([
      [expect.stringContaining("wake the machine")],
      [expect.stringContaining("--jitter")],
      [expect.stringContaining("starts no loop")],
    ]);
    expect(loops("[Timer]\nOnCalendar=2:30 Europe/Rome")[0]?.notes).toEqual([
      expect.stringContaining("end of the gap"),
    ]);
    expect(loops("[Timer]\nOnCalendar=*:0/5 Europe/Rome")[0]?.notes).toEqual([
      expect.stringContaining("first pass only"),
    ]);
  });

  test("a timer without its service, an empty one and a broken one", () => {
    expect(read("[Timer]\nOnCalendar=daily", null)).toMatchObject([
      { kind: "left", reason: "there is no backup.service" },
    ]);
    expect(read("[Timer]\nUnit=other.service\nOnCalendar=daily", null)[1]).toMatchObject({
      reason: "there is no other.service",
    });
    expect(read("")).toMatchObject([{ kind: "left", reason: "it is empty or masked" }]);
    expect(read("[Timer]\nOnCalendar=daily\nwhat").map(({ kind, line }) => [kind, line])).toEqual([
      ["loop", 2],
      ["problem", 3],
    ]);
  });
});

describe("services", () => {
  test("one plain command is its words", () => {
    expect(loopOf('ExecStart=/usr/bin/rsync -a "a b" c%%d %h/x %n')).toMatchObject({
      argv: ["/usr/bin/rsync", "-a", "a b", "c%d", "/home/ann/x", "backup.service"],
      shell: false,
      cwd: null,
    });
  });

  test("specifiers of an instance, of folders and of the host", () => {
    const { argv } = loopOf(
      "ExecStart=/x %p %i %I %N %u %U %t %S %l",
      { env: { XDG_STATE_HOME: "/s" } },
      "a-b@c-d.timer",
    );
    expect(argv.slice(1)).toEqual("a-b c-d c/d a-b@c-d ann 1000 /run/user/1000 /s box".split(" "));
    expect(reasonOf("ExecStart=/x %b")).toContain("%b");
  });

  test.each([
    ["ExecStart=", "starts nothing"],
    ["", "starts nothing"],
    ["ExecStart=bin/x", "no absolute path"],
    ["ExecStart='open", "not closed"],
    ["ExecStart=-", "empty"],
    ["Type=forking\nExecStart=/x", "forking"],
    ["User=www\nExecStart=/x", "runs as www"],
    ["DynamicUser=yes\nExecStart=/x", "made for it"],
    ["WorkingDirectory=here\nExecStart=/x", "no absolute path"],
    ["EnvironmentFile=/etc/*.env\nExecStart=/x", "no one file"],
  ])("%j is left: %s", (service, part) => {
    expect(reasonOf(service)).toContain(part);
  });

  test("whose it is: a system's runs as root where nothing is said", () => {
    expect(reasonOf("ExecStart=/x", { system: true })).toContain("runs as root");
    expect(loopOf("User=ann\nExecStart=/x", { system: true }).cwd).toBe("/");
    expect(loopOf("User=1000\nExecStart=/x", { system: true }).argv).toEqual(["/x"]);
    expect(loopOf("WorkingDirectory=-%h/d\nExecStart=/x").cwd).toBe("/home/ann/d");
    expect(loopOf("WorkingDirectory=~\nExecStart=/x", { system: false }).cwd).toBeNull();
  });

  test("limits and tries", () => {
    expect(
      loopOf("Type=oneshot\nTimeoutStartSec=1h\nTimeoutStopSec=5\nRuntimeMaxSec=1\nExecStart=/x").policy,
    ).toMatchObject({
      timeoutMs: 3_600_000,
      graceMs: 5_000,
    });
    expect(loopOf("TimeoutStartSec=1h\nRuntimeMaxSec=2min\nExecStart=/x").policy).toMatchObject({ timeoutMs: 120_000 });
    expect(loopOf("Type=oneshot\nTimeoutStartSec=infinity\nExecStart=/x").policy).not.toHaveProperty("timeoutMs");
    const { policy, notes } = loopOf("Restart=on-failure\nRestartSec=30\nExecStart=/x");
    expect(policy).toMatchObject({ attempts: 5, backoffMs: 30_000 });
    expect(notes).toEqual([expect.stringContaining("--attempts")]);
    expect(loopOf("Restart=always\nExecStart=/x").policy).not.toHaveProperty("attempts");
  });

  test("variables: secrets are withheld, names are checked, others are passed on", () => {
    const loop = loopOf(
      'Environment=A=1 "B=c d" DB_PASSWORD=hunter2hunter2 IFS=x\nEnvironment=A=2\nPassEnvironment=SSH_AUTH_SOCK LANG\nExecStart=/x',
    );
    expect(loop).toMatchObject({
      env: { A: "2", B: "c d" },
      withheld: ["DB_PASSWORD"],
      envPass: ["SSH_AUTH_SOCK", "LANG"],
      notes: [expect.stringContaining("IFS")],
    });
    expect(JSON.stringify(loop)).not.toContain("hunter2");
  });

  test("what is not taken is named", () => {
    const [loop] = loops(
      "[Timer]\nOnCalendar=daily",
      `[Unit]\nAfter=a\nDescription=b\n${SERVICE}\nNice=5\nProtectHome=yes`,
    );
    expect(loop?.notes).toEqual(["not taken from backup.service: After, Nice, ProtectHome"]);
  });

  const run = (argv: readonly string[], env: Readonly<Record<string, string>> = {}) => {
    const { status, stdout, stderr } = spawnSync(argv[0] ?? "", argv.slice(1), {
      encoding: "utf8",
      env: { PATH: "/usr/bin:/bin", ...env },
      cwd: "/",
    });
    return { status, out: stdout, err: stderr };
  };
  const PRINT = String.raw`/usr/bin/printf '[%%s]'`;

  test("variables in a command mean what they mean to systemd", () => {
    const { argv, env, shell } = loopOf(
      `Environment="A=x  * y" B= C=c\nExecStart=${PRINT} $A "\${A}" pre-\${C}-post $B \${B} a$$b a$C 'it''s' $NONE \${NONE}`,
    );
    expect(shell).toBe(true);
    expect(run(argv, env).out).toBe("[x][*][y][x  * y][pre-c-post][][a$b][a$C][its][]");
    expect(loopOf("ExecStart=:/bin/echo $A ${A}").argv).toEqual(["/bin/echo", "$A", "${A}"]);
  });

  test("several commands run in turn until one fails; a dash forgives, a condition ends it well", () => {
    const steps = (text: string) => run(loopOf(`Type=oneshot\n${text}`).argv);
    expect(
      steps("ExecStartPre=/bin/echo a\nExecStart=/bin/echo b ; /bin/echo c \\; d\nExecStartPost=/bin/echo e"),
    ).toMatchObject({
      status: 0,
      out: "a\nb\nc ; d\ne\n",
    });
    expect(steps("ExecStart=/bin/echo a\nExecStart=/bin/false\nExecStart=/bin/echo b")).toMatchObject({
      status: 1,
      out: "a\n",
    });
    expect(steps("ExecStart=-/bin/false\nExecStart=/bin/echo b")).toMatchObject({ status: 0, out: "b\n" });
    expect(steps("ExecStart=-/bin/false")).toMatchObject({ status: 0 });
    expect(steps("ExecCondition=/bin/false\nExecStart=/bin/echo b")).toMatchObject({ status: 0, out: "" });
    expect(steps("ExecCondition=/bin/true\nExecStart=/bin/echo b")).toMatchObject({ status: 0, out: "b\n" });
  });

  test("any words arrive as they are, with variables and without", () => {
    const word = fc.string({
      unit: fc.constantFrom("a", " ", "'", '"', "*", "~", "\\", "`", ";", "&", "é", "#", "-"),
      maxLength: 8,
    });
    fc.assert(
      fc.property(fc.array(word, { minLength: 1, maxLength: 5 }), fc.boolean(), (words, withVariable) => {
        const written = words.map((one) => `"${one.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`).join(" ");
        const { argv, shell } = loopOf(`ExecStart=${PRINT} ${written}${withVariable ? " ${E}" : ""}`);
        expect(shell).toBe(withVariable);
        const wanted = [...words, ...(withVariable ? ["e"] : [])].map((one) => `[${one}]`).join("");
        expect(run(argv, { E: "e" }).out).toBe(wanted);
      }),
      { numRuns: 40 },
    );
  });

  test("a file of variables is read at each start, where a shell reads it the same", () => {
    const folder = mkdtempSync(join(tmpdir(), "drover-timer-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "v a r s");
    const text = "# c\nA=1\nB='x $y'\nC=\"d e\"\n";
    writeFileSync(file, text);
    const service = `EnvironmentFile="${file}"\nExecStart=${PRINT} \${A} \${B} \${C}`;
    const readFile = () => new TextEncoder().encode(text);
    const { argv, notes } = loopOf(service.replaceAll('"', ""), { readFile });
    expect(run(argv).out).toBe("[1][x $y][d e]");
    expect(notes).toEqual([`${file} is read at each start`]);
    expect(
      reasonOf("EnvironmentFile=/f\nExecStart=/x", { readFile: () => new TextEncoder().encode("A=1\nB=x y\n") }),
    ).toContain("line 2 of /f");
    const optional = loopOf("EnvironmentFile=-/nowhere/at/all\nExecStart=/bin/echo hi");
    expect(run(optional.argv)).toMatchObject({ status: 0, out: "hi\n" });
    expect(optional.notes[0]).toContain("is not there");
  });
});

test("any units are read or told, never a throw", () => {
  const line = fc.tuple(
    fc.constantFrom(
      ..."OnCalendar OnUnitActiveSec OnBootSec Persistent RandomizedDelaySec Unit ExecStart ExecStartPre Environment EnvironmentFile User WorkingDirectory Restart TimeoutStartSec Type StartLimitBurst".split(
        " ",
      ),
    ),
    fc.oneof(
      fc.string(),
      fc.constantFrom("daily", "1h", "yes", "/bin/x $A ${B} ; y", "A=b 'c", "%h", "%", "oneshot", "9e9", "-", ""),
    ),
  );
  const text = fc.array(line, { maxLength: 8 }).map((all) => all.map(([key, value]) => `${key}=${value}`).join("\n"));
  fc.assert(
    fc.property(text, text, fc.boolean(), (timer, service, system) => {
      for (const { line: at, kind, loop, reason, hint } of read(`[Timer]\n${timer}`, `[Service]\n${service}`, {
        system,
      })) {
        expect(at).toBeGreaterThan(0);
        expect(loop !== null).toBe(kind === "loop");
        expect(reason !== null && hint !== null).toBe(kind === "left" || kind === "problem");
      }
    }),
    { numRuns: 1_000 },
  );
});
