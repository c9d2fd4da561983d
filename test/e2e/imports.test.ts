import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ImportAnswer } from "../../src/ops/imports/import-plan.ts";
import { type Home, openHome } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

const names = async (): Promise<string[]> =>
  (await home.json<{ items: { name: string }[] }>(["loop", "ls"])).items.map(({ name }) => name);
const write = (name: string, text: string): void => {
  const file = join(home.folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
};

describe("import crontab", () => {
  const CRONTAB = `# nightly things
PATH=/usr/local/bin:/usr/bin:/bin
MAILTO=ops@example.org
API_TOKEN=hunter2hunter2
30 2 * * 1-5 /usr/bin/backup.sh --all
@reboot /opt/agent
0 4 * * * /usr/bin/mail -s "5\\% off" you%Dear you,%bye
@daily cd /srv && make report
`;

  test("says of each line what was understood, makes paused loops, and none twice", async () => {
    write("tab", CRONTAB);
    const dry = await home.json<ImportAnswer>(["import", "crontab", "tab", "--dry-run"]);
    expect(dry).toMatchObject({ dryRun: true, imported: false, counts: { new: 3, left: 1, problems: 0 } });
    expect(dry.entries.map(({ line, kind, outcome, loop }) => [line, kind, outcome, loop?.name ?? null])).toEqual([
      [1, "comment", null, null],
      [2, "setting", null, null],
      [3, "setting", null, null],
      [4, "setting", null, null],
      [5, "loop", "new", "backup"],
      [6, "left", null, null],
      [7, "loop", "new", "mail"],
      [8, "loop", "new", "make-report"],
    ]);
    expect(existsSync(join(home.folder, "home/drover.db"))).toBe(false);

    const done = await home.json<ImportAnswer>(["import", "crontab", "tab"]);
    expect(done).toEqual({ ...dry, dryRun: false, imported: true });
    expect(JSON.stringify(done)).not.toContain("hunter2");
    expect(home.dump()).not.toContain("hunter2");
    expect(await home.json(["loop", "show", "backup"])).toMatchObject({
      status: "paused",
      pausedReason: "imported from a crontab",
      schedule: { kind: "cron", expression: "30 2 * * 1-5", zone: "UTC" },
      target: {
        argv: ["/bin/sh", "-c", "/usr/bin/backup.sh --all"],
        shell: true,
        cwd: home.folder,
        env: { PATH: "/usr/local/bin:/usr/bin:/bin" },
      },
      policy: { labels: ["crontab"] },
      upcoming: [],
    });

    // One is renamed, one was given another schedule: both are known again.
    await home.run(["loop", "rename", "mail", "offer"]);
    await home.run(["loop", "edit", "make-report", "--every", "1h"]);
    const again = await home.json<ImportAnswer>(["import", "crontab", "tab"]);
    expect(again).toMatchObject({ imported: false, counts: { new: 0, same: 2, changed: 1 } });
    expect(again.entries.flatMap(({ outcome, loop }) => (loop === null ? [] : [[outcome, loop.name]]))).toEqual([
      ["same", "backup"],
      ["same", "offer"],
      ["changed", "make-report"],
    ]);
    expect(await names()).toEqual(["backup", "make-report", "offer"]);
  });

  test("what a line runs is what cron would run: its input, its percent signs, its variables", async () => {
    write("tab", "GREETING='good day'\n* * * * * cat; echo $GREETING \\% $0%one%two\n");
    await home.json(["import", "crontab", "tab"]);
    const [name = ""] = await names();
    const { run } = await home.json<{ run: { id: string; status: string } }>(["loop", "run", name, "--wait"]);
    expect(run.status).toBe("succeeded");
    expect((await home.run(["logs", run.id])).out).toBe("one\ntwo\ngood day % /bin/sh\n");
  });

  test("with wrong lines nothing is made, every one is told, and it ends with 2; --skip-invalid takes the rest", async () => {
    write("tab", "61 * * * * a\n* * * * * /bin/true\nwhat is this\n");
    const refused = await home.run(["import", "crontab", "tab", "--json"]);
    expect(refused.status).toBe(2);
    const answer = JSON.parse(refused.out) as ImportAnswer;
    expect(answer).toMatchObject({ imported: false, counts: { new: 1, problems: 2 } });
    expect(answer.entries.flatMap(({ kind, line, reason }) => (kind === "problem" ? [[line, reason]] : []))).toEqual([
      [1, expect.stringContaining('minute field "61"')],
      [3, expect.stringContaining("neither a setting nor")],
    ]);
    expect(await names()).toEqual([]);
    const said = await home.run(["import", "crontab", "tab"]);
    expect(said.out).toContain("Nothing was imported.");
    expect(await home.json(["import", "crontab", "tab", "--skip-invalid"])).toMatchObject({ imported: true });
    expect(await home.json(["import", "crontab", "tab", "--skip-invalid"])).toMatchObject({ counts: { same: 1 } });
    expect(await names()).toEqual(["true"]);
  });

  test("one of the system's is known by its place and by its lines, and is not read as a person's", async () => {
    write(
      "theirs",
      "SHELL=/bin/sh\n17 * * * * root cd / && run-parts --report /etc/cron.hourly\n@daily root /bin/true\n",
    );
    write("mine", "17 * * * * root-of-all --now\n@daily root /bin/true\n");
    const refused = await home.refused(2, ["import", "crontab", "theirs"]);
    expect(refused).toMatchObject({ message: expect.stringContaining("names a user"), hint: "Give --system." });
    expect(await home.json(["import", "crontab", "theirs", "--system", "--dry-run"])).toMatchObject({
      counts: { problems: 0 },
    });
    expect(await home.json(["import", "crontab", "mine", "--dry-run"])).toMatchObject({ counts: { new: 2 } });
    if (existsSync("/etc/crontab"))
      expect(await home.refused(2, ["import", "crontab", "crontab"], { cwd: "/etc" })).toMatchObject({
        hint: "Give --system.",
      });
  });

  test("asks `crontab -l` where no file is given, and says when there is none", async () => {
    const bin = join(home.folder, "bin");
    mkdirSync(bin);
    const put = (script: string): void => {
      writeFileSync(join(bin, "crontab"), `#!/bin/sh\n${script}\n`);
      chmodSync(join(bin, "crontab"), 0o755);
    };
    const env = { PATH: `${bin}:${home.env["PATH"]}` };
    put(`[ "$*" = -l ] || exit 9; echo '*/5 * * * * /opt/x.sh'`);
    expect(await home.json(["import", "crontab", "--dry-run"], { env })).toMatchObject({
      entries: [{ source: "crontab", line: 1, outcome: "new", loop: { name: "x" } }],
    });
    put("echo 'no crontab for ann' >&2; exit 1");
    expect(await home.refused(3, ["import", "crontab"], { env })).toMatchObject({
      code: "no_crontab",
      message: "no crontab for ann",
    });
    put("echo 'you may not' >&2; exit 1");
    expect(await home.refused(5, ["import", "crontab"], { env })).toMatchObject({ code: "crontab_failed" });
    put("exec sleep 60");
    const limits = { inquiryMs: "300ms" };
    write("home/config.yaml", `limits: ${JSON.stringify(limits)}\n`);
    expect(await home.refused(5, ["import", "crontab"], { env })).toMatchObject({
      message: "`crontab -l` does not answer in time",
    });
    write("home/config.yaml", 'limits: {"inquiryBytes": "1KB"}\n');
    put("yes '* * * * * /opt/x.sh' | head -c 5000");
    expect(await home.refused(5, ["import", "crontab"], { env })).toMatchObject({
      message: expect.stringContaining("limits.inquiryBytes"),
    });
    const none = { PATH: join(home.folder, "nothing"), HOME: join(home.folder, "nothing") };
    // Where this host has a crontab of its own, the usual folders complete the path.
    const answer = await home.run(["import", "crontab", "--dry-run", "--json"], { env: none });
    if (answer.status !== 0) expect(JSON.parse(answer.err)).toMatchObject({ error: { hint: expect.any(String) } });
  });

  test("reads standard input, several files, and names with a prefix; equal names are told apart", async () => {
    // One made by hand is none of an import, though its name and its schedule are the same.
    await home.json(["loop", "add", "old/y", "--cron", "5 5 * * *", "--", "true"]);
    write("one", "* * * * * /opt/x.sh 1\n");
    write("two", "* * * * * /opt/x.sh 2\n* * * * * /opt/x.sh 2\n");
    const answer = await home.json<ImportAnswer>(["import", "crontab", "one", "-", "two", "--prefix", "old/"], {
      input: "5 5 * * * /opt/y.sh",
    });
    expect(answer.entries.map(({ source, loop }) => [source, loop?.name])).toEqual([
      ["one", "old/x"],
      ["standard input", "old/y-2"],
      ["two", "old/x-2"],
      ["two", "old/x-3"],
    ]);
    expect(await home.json(["import", "crontab", "two", "--prefix", "old/"])).toMatchObject({ counts: { same: 2 } });
    for (const prefix of ["-x", "x".repeat(70), "a|b"])
      expect(await home.refused(2, ["import", "crontab", "one", "--prefix", prefix])).toMatchObject({
        path: "--prefix",
      });
    expect(await home.refused(3, ["import", "crontab", "absent"])).toMatchObject({ code: "file_not_found" });
  });

  test("hundreds of loops are made by a daemon that is up, in one piece", async () => {
    await home.json(["up"]);
    write("tab", Array.from({ length: 500 }, (_, n) => `${n % 60} 3 * * * /opt/job-${n}\n`).join(""));
    expect(await home.json(["import", "crontab", "tab"])).toMatchObject({ imported: true, counts: { new: 500 } });
    expect(await home.json(["status"])).toMatchObject({ next: null });
    expect(await home.json(["import", "crontab", "tab"])).toMatchObject({ counts: { new: 0, same: 500 } });
  });
});

describe("import systemd", () => {
  const own = ".config/systemd/user";

  test("makes paused loops of the timers that a person wrote, with their drop-ins, and none twice", async () => {
    write(
      `${own}/backup.timer`,
      "[Timer]\nOnCalendar=Mon..Fri 02:30\nPersistent=yes\n[Install]\nWantedBy=timers.target\n",
    );
    write(`${own}/backup.service`, '[Service]\nType=oneshot\nExecStart=/bin/echo "a b" %h\nTimeoutStartSec=1h\n');
    write(`${own}/backup.timer.d/more.conf`, "[Timer]\nOnCalendar=Sun 04:00\nRandomizedDelaySec=5min\n");
    write(`${own}/lost.timer`, "[Timer]\nOnCalendar=daily\n");
    write(`${own}/form@.timer`, "[Timer]\nOnCalendar=daily\n");
    write(`${own}/form@.service`, "[Service]\nExecStart=/bin/echo %i\n");
    const dry = await home.json<ImportAnswer>(["import", "systemd", "--dry-run"]);
    expect(dry).toMatchObject({ imported: false, counts: { new: 2, left: 1, problems: 0 } });
    expect(await names()).toEqual([]);
    expect(await home.json(["import", "systemd"])).toMatchObject({ imported: true });
    expect(await names()).toEqual(["backup", "backup-2"]);
    expect(await home.json(["loop", "show", "backup"])).toMatchObject({
      status: "paused",
      pausedReason: "imported from systemd",
      schedule: { kind: "cron", expression: "30 2 * * 1-5", zone: "UTC" },
      target: { argv: ["/bin/echo", "a b", home.folder], cwd: home.folder },
      policy: { catchUp: "latest", jitterMs: 300_000, timeoutMs: 3_600_000, labels: ["systemd"] },
    });
    expect(await home.json(["import", "systemd"])).toMatchObject({ imported: false, counts: { new: 0, same: 2 } });

    const { run } = await home.json<{ run: { id: string; status: string } }>(["loop", "run", "backup", "--wait"]);
    expect(run.status).toBe("succeeded");
    expect((await home.run(["logs", run.id])).out).toBe(`a b ${home.folder}\n`);

    // By name; one of a form; what is not there is named, all of it.
    expect(await home.json(["import", "systemd", "form@x", "--prefix", "old-"])).toMatchObject({
      imported: true,
      entries: [{ loop: { name: "old-form-x", argv: ["/bin/echo", "x"] } }],
    });
    expect(await home.refused(3, ["import", "systemd", "backup", "no1", "no2"])).toMatchObject({
      code: "timer_not_found",
      message: 'there is no timer "no1", "no2"',
    });
    expect(await home.refused(2, ["import", "systemd", "form@"])).toMatchObject({ path: "units" });
  });

  test("reads a file and a folder by path; a wrong trigger keeps all of it back", async () => {
    write("units/a.timer", "[Timer]\nOnCalendar=*-*-* 25:00\nOnUnitActiveSec=1h\n");
    write("units/a.service", "[Service]\nExecStart=/bin/true\n");
    write("units/b.timer", "[Timer]\nOnCalendar=daily\nUnit=a.service\n");
    const refused = await home.run(["import", "systemd", "units", "--json"]);
    expect(refused.status).toBe(2);
    const { entries, counts } = JSON.parse(refused.out) as ImportAnswer;
    expect(counts).toMatchObject({ new: 2, problems: 1 });
    expect(entries.find(({ kind }) => kind === "problem")).toMatchObject({ source: "a.timer", line: 2 });
    expect(await names()).toEqual([]);
    expect(await home.json(["import", "systemd", "units/b.timer"])).toMatchObject({ counts: { new: 1 } });
    expect(await home.json(["import", "systemd", "units", "--skip-invalid"])).toMatchObject({
      counts: { new: 1, same: 1 },
    });
    expect(await names()).toEqual(["a", "b"]);
    expect(await home.refused(3, ["import", "systemd"])).toMatchObject({ code: "no_timers" });
    write("units/masked.timer", "");
    expect(await home.json(["import", "systemd", "units/masked.timer"])).toMatchObject({ counts: { left: 1 } });
  });
});
