/**
 * Crontabs: every line as the loop that it would be, or why it is none. Read as Vixie's cron and its heirs (Debian's, cronie,
 * the BSDs) read them; where those differ from one another or from drover, the line says so. Pure.
 */
import { parseCron } from "../core/cron.ts";
import { AppError } from "../core/errors.ts";
import { environmentName } from "../core/target.ts";
import { holdsSecret } from "../core/variable-names.ts";
import { type ForeignLoop, nameOfCommand, type Reading } from "./foreign-loop.ts";

/** What one crontab may hold. cron itself stops at about a thousand characters a line. */
export const CRONTAB_LIMITS = { lines: 50_000, lineBytes: 65_536 } as const;

/** What a crontab is read against. */
export interface CrontabSurroundings {
  /** The format of `/etc/crontab`, where the sixth word is a user. */
  readonly system: boolean;
  /** Who drover runs as. */
  readonly user: string;
  /** Whether a zone is known. */
  readonly isZone: (zone: string) => boolean;
  /** Whether changes of the clock in the years to come touch a schedule; null is the host's zone. */
  readonly clockChanges: (zone: string | null, expression: string) => boolean;
}

/** The settings that are in force for the lines below them. */
interface Settings {
  readonly shell: string;
  readonly home: string | null;
  readonly zone: string | null;
  readonly jitterMs: number;
  readonly env: Readonly<Record<string, string>>;
  readonly withheld: readonly string[];
}

type Said = Partial<Pick<Reading, "loop" | "reason" | "hint" | "notes" | "text">> & Pick<Reading, "kind">;

const problem = (reason: string, hint: string): Said => ({ kind: "problem", reason, hint });
const left = (reason: string, hint: string): Said => ({ kind: "left", reason, hint });

/** Every line that is not blank, in order. Never throws: what cannot be understood is a `problem`. */
export function readCrontab(bytes: Uint8Array, around: CrontabSurroundings): Reading[] {
  const lines = linesOf(bytes);
  if (lines.length > CRONTAB_LIMITS.lines)
    return [
      {
        line: CRONTAB_LIMITS.lines + 1,
        text: "",
        loop: null,
        notes: [],
        kind: "problem",
        reason: `there are more than ${CRONTAB_LIMITS.lines} lines`,
        hint: "Import it in pieces.",
      },
    ];
  let settings: Settings = { shell: "/bin/sh", home: null, zone: null, jitterMs: 0, env: {}, withheld: [] };
  const found: Reading[] = [];
  let sawReturn = false;
  for (const [index, line] of lines.entries()) {
    const notes: string[] = [];
    let text = line ?? "";
    const isLast = index === lines.length - 1; // what stands after the last newline: nothing, where it is as it should be
    if (text.endsWith("\r")) {
      text = text.slice(0, -1);
      if (!sawReturn && text.trim() !== "")
        notes.push("lines end with a carriage return, which cron hands to the command; it is left out here");
      sawReturn ||= text.trim() !== "";
    }
    if (line !== null && text.trim() === "") continue;
    if (isLast && line !== null && !text.trimStart().startsWith("#"))
      notes.push("the last line has no newline: cron ignores it or refuses the file");
    const said = line === null ? unreadable() : readLine(text, settings, around);
    if (said.settings !== undefined) settings = said.settings;
    const { settings: _, notes: more = [], ...rest } = said;
    found.push({ line: index + 1, text, loop: null, reason: null, hint: null, ...rest, notes: [...notes, ...more] });
  }
  return found;
}

const unreadable = (): Said & { settings?: undefined } =>
  problem("it is not UTF-8", "Write it as UTF-8, or put the command into a script.");

/** The lines of the bytes as text; null for one that is no UTF-8. A mark of the byte order is none of it. */
function linesOf(bytes: Uint8Array): (string | null)[] {
  const all = decode(bytes);
  if (all !== null) return all.split("\n");
  const lines: (string | null)[] = [];
  for (let from = 0; from <= bytes.length; ) {
    const at = bytes.indexOf(10, from);
    const end = at === -1 ? bytes.length : at;
    lines.push(decode(bytes.subarray(from, end)));
    from = end + 1;
  }
  return lines;
}

function decode(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null; // said of its line
  }
}

function readLine(
  text: string,
  settings: Settings,
  around: CrontabSurroundings,
): Said & { readonly settings?: Settings | undefined } {
  if (new TextEncoder().encode(text).length > CRONTAB_LIMITS.lineBytes)
    return {
      ...problem(`the line is longer than ${CRONTAB_LIMITS.lineBytes} bytes`, "Put the command into a script."),
      text: `${text.slice(0, 80).replace(/[\ud800-\udbff]$/, "")}...`,
    };
  const line = text.replace(/^[ \t]+/, "");
  if (line.startsWith("#")) return { kind: "comment" };
  if (line.includes("\0")) return problem("it holds a NUL byte", "Remove it: no command can take it.");
  const setting = readSetting(line);
  if (setting !== null) return takeSetting(setting, settings, around);
  return readEntry(line, settings, around);
}

// --- Settings ----------------------------------------------------------------------------------------------------------

interface Setting {
  readonly name: string;
  /** null where its quote is not closed, or something follows it. */
  readonly value: string | null;
  /** All that stands behind the `=`. */
  readonly raw: string;
}

/** `NAME = value` as cron reads it: blanks around both are not theirs, a quote around all of one keeps them; null for no setting. */
function readSetting(line: string): Setting | null {
  const found = /^(?:"([^"=]*)"|'([^'=]*)'|([^\s='"][^\s=]*))[ \t]*=[ \t]*(.*)$/s.exec(line);
  if (found === null) return null;
  const name = found[1] ?? found[2] ?? found[3] ?? "";
  const rest = found[4] ?? "";
  const quote = rest[0];
  if (quote !== '"' && quote !== "'") return { name, raw: rest, value: rest.trimEnd() };
  const end = rest.indexOf(quote, 1);
  return { name, raw: rest, value: end === -1 || rest.slice(end + 1).trim() !== "" ? null : rest.slice(1, end) };
}

function takeSetting(
  { name, value, raw }: Setting,
  settings: Settings,
  { isZone }: CrontabSurroundings,
): Said & { readonly settings?: Settings | undefined } {
  if (value === null)
    return {
      ...problem(
        `the quotes of ${name} do not match`,
        "Put one pair of quotes around the whole value; quotes inside of another kind are kept.",
      ),
      // What is wrong is shown, but for what may be a secret.
      ...(holdsSecret(name, raw) ? { text: `${name}=[secret]` } : {}),
    };
  const said = (notes: string[], change: Partial<Settings> = {}) =>
    ({ kind: "setting", notes, settings: { ...settings, ...change } }) as const;
  const without = { ...settings.env };
  delete without[name];
  switch (name) {
    case "MAILTO":
      return value === ""
        ? said(["no mail was wanted: `drover logs` keeps the output of each run"])
        : said([
            `drover sends no mail to ${value}: to be told of the first failure and the recovery, give each loop --on-failure CMD`,
          ]);
    case "MAILFROM":
    case "CONTENT_TYPE":
    case "CONTENT_TRANSFER_ENCODING":
      return said(["it is about mail, which drover does not send"]);
    case "CRON_TZ":
      return value === "" || isZone(value)
        ? said(["the zone of the lines below, as cronie reads it; Debian's cron ignores it"], {
            zone: value === "" ? null : value,
          })
        : problem(`${JSON.stringify(value)} is no time zone that is known here`, "Write it as in CRON_TZ=Europe/Rome.");
    case "RANDOM_DELAY":
      return /^\d{1,4}$/.test(value)
        ? said([`each start below is put off by up to ${value} min (--jitter), always by the same for one slot`], {
            jitterMs: Number(value) * 60_000,
          })
        : problem("RANDOM_DELAY is no number of minutes", "Write it as in RANDOM_DELAY=30.");
    case "LOGNAME":
    case "USER":
      return said(["cron sets this itself, and so does drover"]);
    case "SHELL":
      if (!value.startsWith("/")) return problem("SHELL is no absolute path", "Write it as in SHELL=/bin/bash.");
      return said([], { shell: value, env: { ...settings.env, SHELL: value } });
    case "HOME":
      if (!value.startsWith("/")) return problem("HOME is no absolute path", "Write the folder with its full path.");
      return said(["the lines below run in this folder"], { home: value, env: { ...settings.env, HOME: value } });
    case "TZ":
      return said(["it is the zone of what runs, not of when it runs"], { env: { ...settings.env, TZ: value } });
  }
  const checked = environmentName.safeParse(name);
  if (!checked.success)
    return said([`it is not taken: ${checked.error.issues[0]?.message ?? "no process can be given it"}`]);
  if (holdsSecret(name, value))
    return {
      ...said(
        [
          `its name says that it is a secret: the value is not stored. Say where it comes from: --secret ${name}=file:PATH`,
        ],
        { env: without, withheld: [...new Set([...settings.withheld, name])] },
      ),
      text: `${name}=[secret]`,
    };
  const notes = /\$[A-Za-z_{(]/.test(value)
    ? ["cron does not expand $ in a setting: the value is these characters, here too"]
    : [];
  return said(notes, {
    env: { ...settings.env, [name]: value },
    withheld: settings.withheld.filter((one) => one !== name),
  });
}

// --- Entries -----------------------------------------------------------------------------------------------------------

const MACROS: ReadonlyMap<string, string> = new Map([
  ["@yearly", "@yearly"],
  ["@annually", "@annually"],
  ["@monthly", "@monthly"],
  ["@weekly", "@weekly"],
  ["@daily", "@daily"],
  ["@midnight", "@midnight"],
  ["@hourly", "@hourly"],
  ["@every_minute", "* * * * *"],
]);

function readEntry(line: string, settings: Settings, around: CrontabSurroundings): Said {
  const notes: string[] = [];
  let expression: string;
  let isFixed: boolean;
  let rest: string;
  if (line.startsWith("@")) {
    const [, word = "", more = ""] = /^(\S+)[ \t]*(.*)$/s.exec(line) ?? [];
    if (word.toLowerCase() === "@reboot")
      return left(
        "it runs when the machine starts, which is no schedule",
        "Let the service manager start it: a systemd user unit, or launchd on macOS.",
      );
    const known = MACROS.get(word.toLowerCase());
    if (known === undefined)
      return problem(`${word} is no schedule of cron`, `Use one of ${[...MACROS.keys()].join(" ")}, or five fields.`);
    [expression, isFixed, rest] = [known, known !== "@hourly" && known.startsWith("@"), more];
  } else {
    // Some crons take a `-` in front for "do not log".
    const found = /^-?(\S+)[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)(?:[ \t]+(.*))?$/s.exec(line);
    if (found === null)
      return problem(
        "it is neither a setting nor five fields and a command",
        "Write it as in 30 2 * * 1-5 COMMAND, or NAME=value, or # for a comment.",
      );
    const made = expressionOf(found.slice(1, 6), line);
    if (made.kind !== "schedule") return made;
    ({ expression, isFixed } = made);
    notes.push(...made.notes);
    rest = found[6] ?? "";
  }
  if (around.system) {
    const [, user = "", more = ""] = /^(\S*)[ \t]*(.*)$/s.exec(rest) ?? [];
    const name = user.split(/[:/]/)[0] ?? user;
    if (name === "" || more === "")
      return problem("a user and a command are missing", "A system's crontab has a user in front of the command.");
    if (name !== around.user)
      return left(
        `it runs as ${name}, and drover runs as ${around.user}`,
        `Import it as ${name}, with a drover of its own.`,
      );
    rest = more;
  }
  if (rest.trim() === "")
    return problem("the command is missing", "Write it after the schedule, as in 30 2 * * 1-5 COMMAND.");
  try {
    const { fixedTime } = parseCron(expression);
    if (fixedTime !== isFixed && around.clockChanges(settings.zone, expression))
      notes.push(
        fixedTime
          ? "at a change of the clock drover starts it once, as a time of the day; cron as often as the clock shows it"
          : "at a change of the clock cron starts it once, as a time of the day; drover as often as the clock shows it",
      );
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return left(error.message, error.hint ?? "Correct the schedule.");
  }
  const { command, input } = splitInput(rest);
  if (command.trim() === "") return problem("the command is empty", "Write it in front of the first %.");
  return withCommand(expression, command, input, settings, notes);
}

/** How a shell is told apart that takes `exec <<'WORD'`. */
const BOURNE = /^(?:ba|da|z|k|mk|a|y)?sh$/;

function withCommand(
  expression: string,
  command: string,
  input: string | null,
  settings: Settings,
  notes: string[],
): Said {
  const { shell, home, zone, env, withheld, jitterMs } = settings;
  let text = command;
  if (input !== null) {
    const end = endOf(input);
    if (end === null || !BOURNE.test(shell.split("/").at(-1) ?? ""))
      return left(
        `what follows % is the command's standard input, and ${shell} cannot be given it here`,
        "Put both into a script.",
      );
    text = `exec <<'${end}'\n${input}${end}\n${command}`;
    notes.push("what follows % is its standard input, given by a here-document");
  }
  const named = /(?<![\w$])([A-Za-z_]\w*)=(?:"([^"]*)"|'([^']*)'|(\S+))/g;
  for (const [, name = "", ...values] of command.matchAll(named))
    if (holdsSecret(name, values.find((one) => one !== undefined) ?? ""))
      notes.push(`${name} in the command looks like a secret, and is stored with it: better give it with --secret`);
  const loop: ForeignLoop = {
    name: nameOfCommand(command, "cron"),
    schedule: { kind: "cron", expression, zone },
    argv: [shell, "-c", text],
    shell: shell === "/bin/sh",
    cwd: home,
    env,
    envPass: [],
    policy: { labels: ["crontab"], ...(jitterMs === 0 ? {} : { jitterMs }) },
    withheld,
  };
  return { kind: "loop", loop, notes };
}

/**
 * A word of which no line of the text begins with the first letter: dash 0.5 loses a byte of what follows a beginning of the
 * word in another alphabet. null where every letter begins a line.
 */
function endOf(input: string): string | null {
  const taken = new Set(input.split("\n").map((line) => line[0]));
  const letter = [..."EFGHIJKLMNOPQRSTUVWXYZABCDefghijklmnopqrstuvwxyzabcd_"].find((one) => !taken.has(one));
  return letter === undefined ? null : `${letter}ND`;
}

/**
 * The command, and what it reads: everything from the first `%` on, where each further one is the end of a line.
 * `\%` is a percent sign in both. Input that does not end with a newline gets one.
 */
export function splitInput(rest: string): { readonly command: string; readonly input: string | null } {
  let at = 0;
  while (at < rest.length && rest[at] !== "%") at += rest[at] === "\\" ? 2 : 1;
  const command = rest.slice(0, at).replaceAll("\\%", "%");
  if (at >= rest.length) return { command, input: null };
  const input = rest.slice(at + 1).replace(/\\%|%/g, (one) => (one === "%" ? "\n" : "%"));
  return { command, input: input === "" || input.endsWith("\n") ? input : `${input}\n` };
}

// --- Schedules ---------------------------------------------------------------------------------------------------------

interface Rule {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly names: readonly string[];
}
const MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split(" ");
const WEEKDAYS = "sun mon tue wed thu fri sat".split(" ");
const RULES: readonly Rule[] = [
  { name: "minute", min: 0, max: 59, names: [] },
  { name: "hour", min: 0, max: 23, names: [] },
  { name: "day-of-month", min: 1, max: 31, names: [] },
  { name: "month", min: 1, max: 12, names: MONTHS },
  { name: "day-of-week", min: 0, max: 7, names: WEEKDAYS },
];

interface CronField {
  readonly text: string;
  /** It begins with `*`, by which cron decides how the two day fields are joined. */
  readonly star: boolean;
  /** It holds every value. */
  readonly full: boolean;
}

function expressionOf(
  words: readonly string[],
  line: string,
):
  | Said
  | {
      readonly kind: "schedule";
      readonly expression: string;
      /** For cron: neither minute nor hour begins with `*`. */
      readonly isFixed: boolean;
      readonly notes: readonly string[];
    } {
  const notes: string[] = [];
  const fields: CronField[] = [];
  for (const [index, rule] of RULES.entries()) {
    const read = readField(words[index] ?? "", rule, line, notes);
    if (typeof read === "string")
      return problem(
        `${rule.name} field ${JSON.stringify(words[index])}: ${read}`,
        `Use numbers from ${rule.min} to ${rule.max}, ranges, lists and steps.`,
      );
    fields.push(read);
  }
  const texts = fields.map(({ text }) => text);
  const [monthDay, weekDay] = [fields[2] as CronField, fields[4] as CronField];
  if (monthDay.star || weekDay.star) {
    // A field that begins with * joins the two by "and"; here any text but a lone * is a restriction, joined by "or".
    if (monthDay.full) texts[2] = "*";
    if (weekDay.full) texts[4] = "*";
    if (texts[2] !== "*" && texts[4] !== "*")
      return left(
        `cron joins the days ${words[2]} and ${words[4]} by "and", since one begins with *; no schedule of drover does`,
        "Test one of the two in the command.",
      );
  }
  return {
    kind: "schedule",
    expression: texts.join(" "),
    isFixed: fields[0]?.star === false && fields[1]?.star === false,
    notes,
  };
}

/** One field as cron reads it, written so that drover reads the same; a text says what is wrong. */
function readField(text: string, rule: Rule, line: string, notes: string[]): CronField | string {
  const has = new Set<number>();
  const values = rule.name === "day-of-week" ? 7 : rule.max - rule.min + 1;
  const add = (low: number, high: number, step: number): void => {
    for (let value = low; value <= high; value += step) has.add(rule.name === "day-of-week" ? value % 7 : value);
  };
  const number = (word: string): number | null => {
    const named = rule.names.indexOf(word.toLowerCase());
    if (named >= 0) return named + rule.min;
    if (!/^\d{1,4}$/.test(word)) return null;
    const value = Number(word);
    return value < rule.min || value > rule.max ? null : value;
  };
  const written: string[] = [];
  for (const element of text.split(",")) {
    const [, base = "", stepText] = /^([^/]*)(?:\/(.*))?$/s.exec(element) ?? [];
    if (stepText !== undefined && (!/^\d{1,6}$/.test(stepText) || Number(stepText) === 0))
      return `the step ${JSON.stringify(stepText)} is not a positive number`;
    const step = stepText === undefined ? 1 : Number(stepText);
    if (base === "*") {
      add(rule.min, rule.max, step);
      written.push(stepText === undefined || step <= values ? element : String(rule.min));
      continue;
    }
    const range = /^([^-~]*)([-~])([^-~]*)$/.exec(base);
    if (range === null) {
      const value = number(base);
      if (value === null) return `${JSON.stringify(base)} is no value of this field`;
      if (stepText === undefined) {
        add(value, value, 1);
        written.push(base);
      } else {
        add(value, rule.max, step);
        written.push(step <= values ? element : base);
        notes.push(
          `${element} is read as ${value}-${rule.max}/${step}; Vixie's cron takes it for ${value} alone, and Debian's refuses it`,
        );
      }
      continue;
    }
    const [, lowText = "", sign, highText = ""] = range;
    const low = sign === "~" && lowText === "" ? rule.min : number(lowText);
    const high = sign === "~" && highText === "" ? rule.max : number(highText);
    if (low === null || high === null)
      return `${JSON.stringify(low === null ? lowText : highText)} is no value of this field`;
    if (low > high) return `the range ${base} is reversed`;
    if (sign === "~") {
      const picked =
        low +
        (hashOf(`${rule.name} ${line}`) % (Math.min(high - low, stepText === undefined ? high - low : step - 1) + 1));
      add(picked, stepText === undefined ? picked : high, step);
      written.push(stepText === undefined ? String(picked) : `${picked}-${high}/${Math.min(step, values)}`);
      notes.push(
        `cron draws a value for ${element} each time that it reads the file; here it is ${picked}, and stays so`,
      );
      continue;
    }
    add(low, high, step);
    written.push(stepText !== undefined && step > values ? lowText : element);
  }
  return { text: written.join(","), star: text.startsWith("*"), full: has.size === values };
}

/** A number from a text, always the same one (FNV-1a). */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193) >>> 0;
  return hash;
}
