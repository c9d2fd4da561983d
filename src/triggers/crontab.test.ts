import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { nextFiring, parseCron } from "../core/cron.ts";
import { CRONTAB_LIMITS, type CrontabSurroundings, readCrontab, splitInput } from "./crontab.ts";
import { nameOfCommand } from "./foreign-loop.ts";

const around: CrontabSurroundings = {
  system: false,
  user: "ann",
  isZone: (zone) => /^(UTC|Europe\/Rome)$/.test(zone),
  clockChanges: (zone) => zone === "Europe/Rome",
};
const bytes = (text: string) => new TextEncoder().encode(text);
const read = (text: string, more: Partial<CrontabSurroundings> = {}) =>
  readCrontab(bytes(text), { ...around, ...more });
const only = (text: string, more: Partial<CrontabSurroundings> = {}) => {
  const found = read(`${text}\n`, more);
  expect(found).toHaveLength(1);
  return found[0] as NonNullable<(typeof found)[0]>;
};
const loopOf = (text: string) => {
  const { loop, reason } = read(`${text}\n`).at(-1) ?? {};
  expect(reason).toBeNull();
  return loop as NonNullable<typeof loop>;
};
const expressionOf = (fields: string) => {
  const { schedule } = loopOf(`${fields} run`);
  return schedule.kind === "cron" ? schedule.expression : schedule.kind;
};

describe("lines", () => {
  test("blank lines are nothing, comments are kept, each line has its number", () => {
    expect(read("# a\n\n  \t\n * * * * * b\n\t# c\n").map(({ line, kind, text }) => [line, kind, text])).toEqual([
      [1, "comment", "# a"],
      [4, "loop", " * * * * * b"],
      [5, "comment", "\t# c"],
    ]);
  });

  test("a command is all of the rest of the line, also what looks like a comment", () => {
    expect(loopOf("5\t4 * * *   echo  'a b' # c ").argv).toEqual(["/bin/sh", "-c", "echo  'a b' # c "]);
    expect(loopOf("@daily x").schedule).toEqual({ kind: "cron", expression: "@daily", zone: null });
    expect(loopOf("@every_minute x").schedule).toMatchObject({ expression: "* * * * *" });
  });

  test.each([
    ["* * * *", "neither a setting nor five fields"],
    ["hello", "neither a setting nor five fields"],
    ["* * * * *", "the command is missing"],
    ["* * * * *  \t", "the command is missing"],
    ["* * * * * %in", "the command is empty"],
    ["@fortnightly x", "@fortnightly is no schedule"],
    ["@daily", "the command is missing"],
    ["60 * * * * x", 'minute field "60"'],
    ["* 24 * * * x", 'hour field "24"'],
    ["* * 0 * * x", 'day-of-month field "0"'],
    ["* * * foo * x", 'month field "foo"'],
    ["* * * * 8 x", 'day-of-week field "8"'],
    ["5-1 * * * * x", "the range 5-1 is reversed"],
    ["*/0 * * * * x", "the step"],
    ["1,,2 * * * * x", '"" is no value'],
    ["? * * * * x", '"?" is no value'],
    ["* * L * * x", '"L" is no value'],
    ['A="b', "the quotes of A do not match"],
    ['A="b" c', "the quotes of A do not match"],
    ["CRON_TZ=Mars/Base", "no time zone"],
    ["SHELL=bash", "SHELL is no absolute path"],
    ["HOME=here", "HOME is no absolute path"],
    ["* * * * * a\0b", "NUL"],
  ])("%j is a problem: %s", (text, part) => {
    expect(only(text)).toMatchObject({ kind: "problem", loop: null, reason: expect.stringContaining(part) });
    expect(only(text).hint).not.toBeNull();
  });

  test.each([
    ["@reboot x", "when the machine starts"],
    ["@REBOOT x", "when the machine starts"],
    ["0 0 30 2 * x", "never fires"],
    ["0 0 */2 * 1 x", '"and"'],
    ["0 0 1 * */2 x", '"and"'],
  ])("%j is left, with its reason", (text, part) => {
    expect(only(text)).toMatchObject({ kind: "left", loop: null, reason: expect.stringContaining(part) });
  });

  test("every problem is told at once, with its line", () => {
    const found = read("60 * * * * a\n* * * * * b\n@never c\nA='x\n");
    expect(found.map(({ line, kind }) => [line, kind])).toEqual([
      [1, "problem"],
      [2, "loop"],
      [3, "problem"],
      [4, "problem"],
    ]);
  });

  test("a line that is no UTF-8 is a problem of its own; a mark of the byte order is not", () => {
    const found = readCrontab(
      new Uint8Array([...bytes("\ufeff* * * * * a\n* * * * * "), 0xff, 0x0a, ...bytes("* * * * * \u00e9\n")]),
      around,
    );
    expect(found.map(({ line, kind }) => [line, kind])).toEqual([
      [1, "loop"],
      [2, "problem"],
      [3, "loop"],
    ]);
  });

  test("carriage returns are no part of a command, and are told once", () => {
    const found = read("A=b\r\n\r\n* * * * * x\r\n* * * * * y\r\n");
    expect(found.map(({ loop }) => loop?.argv[2] ?? null)).toEqual([null, "x", "y"]);
    expect(found.map(({ notes }) => notes.length)).toEqual([1, 0, 0]);
    expect(found[1]?.loop?.env).toEqual({ A: "b" });
  });

  test("a last line without its newline is understood, and told", () => {
    expect(read("* * * * * x").map(({ kind, notes }) => [kind, notes])).toEqual([
      ["loop", [expect.stringContaining("no newline")]],
    ]);
    expect(read("# x")[0]?.notes).toEqual([]);
  });

  test("lines and files that are too long are refused, and shown short", () => {
    const long = only(`* * * * * ${"x".repeat(CRONTAB_LIMITS.lineBytes)}`);
    expect(long).toMatchObject({ kind: "problem", reason: expect.stringContaining("longer than") });
    expect(long.text.length).toBeLessThan(100);
    expect(read("\n".repeat(CRONTAB_LIMITS.lines + 1))).toMatchObject([{ kind: "problem", loop: null }]);
  });

  test("ten thousand lines are as many loops", () => {
    const found = read(Array.from({ length: 10_000 }, (_, n) => `${n % 60} * * * * job-${n}\n`).join(""));
    expect(found.filter(({ kind }) => kind === "loop")).toHaveLength(10_000);
  });
});

describe("settings", () => {
  test("hold for the lines below them, the last one wins", () => {
    const found = read("* * * * * a\nX=1\n* * * * * b\nX=2\nY = ' y '\n* * * * * c\n").flatMap(
      ({ loop }) => loop ?? [],
    );
    expect(found.map(({ env }) => env)).toEqual([{}, { X: "1" }, { X: "2", Y: " y " }]);
  });

  test.each([
    ["A=b", "b"],
    ["  A =  b c  ", "b c"],
    ['"A"=\'b "c"\'', 'b "c"'],
    ["A=b 'c'", "b 'c'"],
    ["A=", ""],
    ["A=''", ""],
    ["A=b=c", "b=c"],
    ["A=b # c", "b # c"],
    ["A=$HOME/x", "$HOME/x"],
  ])("%j gives A the value %j", (line, value) => {
    expect(loopOf(`${line}\n* * * * * x`).env).toEqual({ A: value });
  });

  test("an assignment in front of a command is the command's", () => {
    expect(loopOf("* * * * * A=b run").argv[2]).toBe("A=b run");
  });

  test("a dollar in a value is said to be one", () => {
    expect(only("PATH=$HOME/bin:/bin").notes).toEqual([expect.stringContaining("does not expand")]);
  });

  test("the shell and the folder", () => {
    const loop = loopOf("SHELL=/bin/bash\nHOME=/srv\n* * * * * x");
    expect(loop).toMatchObject({ argv: ["/bin/bash", "-c", "x"], shell: false, cwd: "/srv" });
    expect(loop.env).toEqual({ SHELL: "/bin/bash", HOME: "/srv" });
  });

  test("the zone and the delay", () => {
    const loop = loopOf("CRON_TZ=Europe/Rome\nRANDOM_DELAY=5\n* * * * * x");
    expect(loop.schedule).toMatchObject({ zone: "Europe/Rome" });
    expect(loop.policy).toEqual({ labels: ["crontab"], jitterMs: 300_000 });
    expect(loopOf("CRON_TZ=Europe/Rome\nCRON_TZ=\n* * * * * x").schedule).toMatchObject({ zone: null });
    expect(only("RANDOM_DELAY=soon").kind).toBe("problem");
  });

  test("mail is never dropped without a word", () => {
    expect(only("MAILTO=ops@example.org").notes).toEqual([expect.stringContaining("--on-failure")]);
    expect(only('MAILTO=""').notes).toEqual([expect.stringContaining("drover logs")]);
    expect(loopOf("MAILTO=ops\n* * * * * x").env).toEqual({});
  });

  test("a secret is not taken, not shown, and to be given", () => {
    const found = read("API_TOKEN=hunter2hunter2\nX=1\n* * * * * x\n");
    expect(JSON.stringify(found)).not.toContain("hunter2");
    expect(found[0]).toMatchObject({ kind: "setting", text: "API_TOKEN=[secret]" });
    expect(only("API_TOKEN='hunter2hunter2")).toMatchObject({ kind: "problem", text: "API_TOKEN=[secret]" });
    expect(found[2]?.loop).toMatchObject({ env: { X: "1" }, withheld: ["API_TOKEN"] });
    expect(loopOf("API_TOKEN=short\nAPI_TOKEN=hunter2hunter2\n* * * * * x")).toMatchObject({
      env: {},
      withheld: ["API_TOKEN"],
    });
    expect(loopOf("API_TOKEN=hunter2hunter2\nAPI_TOKEN=short\n* * * * * x")).toMatchObject({
      env: { API_TOKEN: "short" },
      withheld: [],
    });
    expect(only("* * * * * DB_PASSWORD=hunter2hunter2 run").notes).toEqual([expect.stringContaining("DB_PASSWORD")]);
  });

  test("names that no process can be given are told", () => {
    expect(only("DROVER_X=1").notes).toEqual([expect.stringContaining("not taken")]);
    expect(only("a-b=1").notes).toEqual([expect.stringContaining("not taken")]);
    expect(only("IFS=x").notes).toEqual([expect.stringContaining("not taken")]);
  });
});

describe("a system's crontab", () => {
  test("has a user in each line, and only the own lines are loops", () => {
    expect(only("5 4 * * * ann  run me", { system: true }).loop?.argv[2]).toBe("run me");
    expect(only("@daily ann run", { system: true }).loop?.argv[2]).toBe("run");
    expect(only("5 4 * * * root run", { system: true })).toMatchObject({
      kind: "left",
      reason: "it runs as root, and drover runs as ann",
    });
    expect(only("5 4 * * * ann", { system: true }).kind).toBe("problem");
  });
});

describe("percent signs", () => {
  test.each([
    ["a", "a", null],
    ["a %b", "a ", "b\n"],
    ["a %b%c", "a ", "b\nc\n"],
    ["a %b%", "a ", "b\n"],
    ["a %", "a ", ""],
    ["date +\\%F", "date +%F", null],
    ["date +\\%F %x\\%y", "date +%F ", "x%y\n"],
    ["a \\\\%b", "a \\\\", "b\n"],
    ["a \\n b", "a \\n b", null],
    ["a \\", "a \\", null],
    ["a %\\", "a ", "\\\n"],
  ])("%j", (rest, command, input) => {
    expect(splitInput(rest)).toEqual({ command, input });
  });

  const shells = ["/bin/sh", "/bin/bash"].filter((shell) => spawnSync(shell, ["-c", ":"]).status === 0);
  test.each(shells)("%s gives the input to the command, whatever is in it", (shell) => {
    const input = fc.string({ unit: fc.constantFrom("a", "%", "\\", "'", '"', "$", "`", "END", "_", " ", "\n", "é") });
    fc.assert(
      fc.property(input, (text) => {
        const written = text.replaceAll("%", "\\%").replaceAll("\n", "%");
        const { input: wanted } = splitInput(`cat%${written}`);
        const [line] = read(`SHELL=${shell}\n* * * * * cat; echo done%${written}\n`).slice(1);
        const [program = "", ...args] = line?.loop?.argv ?? [];
        const { stdout, stderr } = spawnSync(program, args, { encoding: "utf8", input: "from outside" });
        expect({ stdout, stderr }).toEqual({ stdout: `${wanted}done\n`, stderr: "" });
      }),
      { numRuns: 25, examples: [["END"], ["ENDé\nEND_\nFé"], ["a\nEé"]] },
    );
  });

  test("a shell that has no such here-document is left", () => {
    expect(read("SHELL=/usr/bin/fish\n* * * * * a%b\n")[1]).toMatchObject({ kind: "left" });
    const letters = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index)).filter(
      (one) => !/[%\\]/.test(one),
    );
    expect(only(`* * * * * a%${letters.join("%")}`)).toMatchObject({ kind: "left" });
    expect(only(`* * * * * a%${letters.slice(0, 60).join("%")}`)).toMatchObject({ kind: "loop" });
    expect(read("SHELL=/usr/bin/fish\n* * * * * a\n")[1]).toMatchObject({ kind: "loop" });
  });
});

describe("schedules", () => {
  test.each([
    ["30 2 * * 1-5", "30 2 * * 1-5"],
    ["*/5 * * * *", "*/5 * * * *"],
    ["*/90 * * * *", "0 * * * *"],
    ["10-20/90 * * * *", "10 * * * *"],
    ["10-20/30 * * * *", "10-20/30 * * * *"],
    ["0 0 */1 * 1", "0 0 * * 1"],
    ["0 0 *,5 * 1", "0 0 * * 1"],
    ["0 0 1-31 * 1", "0 0 1-31 * 1"],
    ["0 0 */2 * *", "0 0 */2 * *"],
    ["0 0 */2 * 0-6", "0 0 */2 * *"],
    ["0 0 1 * */1", "0 0 1 * *"],
    ["0 0 * jan,Mar sun-tue", "0 0 * jan,Mar sun-tue"],
  ])("%s is %s here", (cron, ours) => {
    expect(expressionOf(cron)).toBe(ours);
  });

  test("a drawn value stays the same, lies in its range, and differs from line to line", () => {
    const drawn = (line: string) => Number(expressionOf(line).split(" ")[0]);
    expect(drawn("~ 3 * * *")).toBe(drawn("~ 3 * * *"));
    const all = Array.from({ length: 24 }, (_, hour) => drawn(`10~19 ${hour} * * *`));
    expect(all.every((minute) => minute >= 10 && minute <= 19)).toBe(true);
    expect(new Set(all).size).toBeGreaterThan(3);
    expect(only("~ 3 * * * x").notes).toEqual([expect.stringContaining("stays so")]);
  });

  test("what cron reads another way is told: a bare start with a step, and times with a step over a change of the clock", () => {
    expect(only("5/15 * * * * x").notes).toEqual([expect.stringContaining("Vixie")]);
    const rome = (fields: string) => read(`CRON_TZ=Europe/Rome\n${fields} x\n`)[1]?.notes ?? [];
    expect(rome("0 1-5/2 * * *")).toEqual([expect.stringContaining("cron starts it once")]);
    expect(rome("*/90 2 * * *")).toEqual([expect.stringContaining("drover starts it once")]);
    for (const same of ["0 1-5 * * *", "*/30 2 * * *", "0 */2 * * *"]) expect(rome(same)).toEqual([]);
    expect(only("0 1-5/2 * * * x").notes).toEqual([]);
  });

  // Cron itself, as its manual has it: bits, and a star that joins the days by "and".
  const RANGES = [
    [0, 59],
    [0, 23],
    [1, 31],
    [1, 12],
    [0, 7],
  ] as const;
  const bitsOf = (text: string, [low, high]: readonly [number, number]) => {
    const bits = new Set<number>();
    for (const element of text.split(",")) {
      const [base = "", step = "1"] = element.split("/");
      const [from = "", to = from] = base === "*" ? [String(low), String(high)] : base.split("-");
      for (let value = Number(from); value <= Number(to); value += Number(step)) bits.add(value);
    }
    return bits;
  };
  const cronOf = (fields: readonly string[]): ((at: number) => boolean) => {
    const bits = fields.map((field, index) => bitsOf(field, RANGES[index] ?? [0, 0]));
    const and = fields[2]?.startsWith("*") === true || fields[4]?.startsWith("*") === true;
    return (ms) => {
      const at = new Date(ms);
      if (bits[0]?.has(at.getUTCMinutes()) !== true || bits[1]?.has(at.getUTCHours()) !== true) return false;
      const day = bits[2]?.has(at.getUTCDate()) === true;
      const week = bits[4]?.has(at.getUTCDay()) === true || (at.getUTCDay() === 0 && bits[4]?.has(7) === true);
      return bits[3]?.has(at.getUTCMonth() + 1) === true && (and ? day && week : day || week);
    };
  };
  const field = ([low, high]: readonly [number, number]) => {
    const value = fc.integer({ min: low, max: high });
    const step = fc.oneof(
      fc.constant(""),
      fc.integer({ min: 1, max: 70 }).map((n) => `/${n}`),
    );
    const range = fc.tuple(value, value, step).map(([a, b, s]) => `${Math.min(a, b)}-${Math.max(a, b)}${s}`);
    const star = step.map((s) => `*${s}`);
    const element = fc.oneof({ weight: 3, arbitrary: star }, range, value.map(String));
    return fc.oneof(
      fc.constant("*"),
      fc.array(element, { minLength: 1, maxLength: 3 }).map((all) => all.join(",")),
    );
  };
  test("fires at the minutes at which cron does, for any five fields, or is left with its reason", () => {
    const outcomes = { loop: 0, left: 0 };
    fc.assert(
      fc.property(fc.tuple(...RANGES.map(field)), fc.integer({ min: 0, max: 3_650 }), (fields, day) => {
        const { kind, loop } = only(`${fields.join(" ")} x`);
        const from = Date.UTC(2026, 0, 1) + day * 86_400_000;
        if (kind !== "loop" || loop?.schedule.kind !== "cron") {
          expect(kind).toBe("left");
          outcomes.left++;
          return;
        }
        outcomes.loop++;
        const cron = parseCron(loop.schedule.expression);
        const firesIn = cronOf(fields);
        const until = from + 3 * 86_400_000;
        let next = nextFiring(cron, "UTC", from - 1);
        for (let at = from; at < until; at += 60_000) {
          const fires = firesIn(at);
          if (fires !== (next === at)) expect(`${fields.join(" ")} at ${new Date(at).toISOString()}`).toBe(fires);
          if (next === at) next = nextFiring(cron, "UTC", at);
        }
      }),
      { numRuns: 300 },
    );
    expect(outcomes.loop).toBeGreaterThan(100);
    expect(outcomes.left).toBeGreaterThan(5);
  });
});

test.each([
  ["/usr/bin/backup.sh --all", "backup"],
  ["cd /srv && make report >> x 2>&1", "make-report"],
  ["test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }", "cron.daily"],
  ["flock -n /tmp/lock nice -n 10 /opt/My_Job.py", "my_job"],
  ["FOO=bar /bin/bash /opt/x.sh", "x"],
  ["sudo -u www php -f /var/www/cron.php", "cron"],
  ["git -C /srv fetch", "git"],
  ["git pull", "git-pull"],
  ["timeout 1h curl https://example.org", "curl"],
  ["bash -c 'echo hi'", "bash"],
  ["%%%", "cron"],
  ["", "cron"],
])("%j is named %s", (command, name) => {
  expect(nameOfCommand(command, "cron")).toBe(name);
});

test("any bytes give lines that are understood or refused, never a throw; names are names", () => {
  const token = fc.constantFrom(
    ..."* */2 1-5 @daily @reboot % \\% \\ ' \" = A= SHELL=/bin/sh HOME=/x CRON_TZ=UTC PATH=/bin \n \r\n \t # ~ 5~9 0 61 mon cmd | && ; ( { $( \0 é".split(
      " ",
    ),
    " ",
  );
  const text = fc.array(token, { maxLength: 60 }).map((all) => bytes(all.join("")));
  fc.assert(
    fc.property(fc.oneof(text, fc.uint8Array({ maxLength: 200 })), fc.boolean(), (input, system) => {
      for (const { line, kind, loop, reason, hint } of readCrontab(input, { ...around, system })) {
        expect(line).toBeGreaterThan(0);
        expect(loop !== null).toBe(kind === "loop");
        expect(reason !== null && hint !== null).toBe(kind === "left" || kind === "problem");
        if (loop !== null) expect(loop.name).toMatch(/^[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?$/);
      }
    }),
    { numRuns: 2_000 },
  );
});
