/** Timers of systemd with what they start: each trigger as the loop that it would be, or why it is none. Pure but for `readFile`. */
import { parseCron } from "../core/cron.ts";
import { AppError } from "../core/errors.ts";
import type { LoopPolicy } from "../core/loop.ts";
import { SCHEDULE_LIMITS } from "../core/schedule.ts";
import { environmentName } from "../core/target.ts";
import { holdsSecret } from "../core/variable-names.ts";
import { isFault, readCalendar, readSpan, scheduleOf, type Fault } from "./calendar.ts";
import { type ForeignLoop, type ForeignSchedule, nameFrom, type Reading } from "./foreign-loop.ts";
import { allOf, isYes, lastOf, type Unit, type UnitSetting, type Word, wordsOf } from "./unit-file.ts";
import { shellWord } from "../core/shell-word.ts";

/** What timers are read against. */
export interface TimerSurroundings {
  /** A unit of the system, whose services run as root where nothing else is said. */
  readonly system: boolean;
  /** Who drover runs as. */
  readonly user: string;
  readonly uid: number;
  readonly home: string;
  readonly hostName: string;
  /** `$XDG_RUNTIME_DIR` and its kin, where they are set. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly isZone: (zone: string) => boolean;
  /** Whether changes of the clock in the years to come touch a schedule; null is the host's zone. */
  readonly clockChanges: (zone: string | null, expression: string) => boolean;
  /** A file's bytes; null where it is not there or cannot be read. */
  readonly readFile: (path: string) => Uint8Array | null;
}

/** A timer, and the service that it starts. */
export interface Timer {
  /** `backup.timer`. */
  readonly name: string;
  readonly unit: Unit;
  readonly serviceName: string;
  /** null: there is none. */
  readonly service: Unit | null;
}

const fault = (text: string): Fault => ({ fault: text });

/** What a timer starts: `Unit=`, or the service of its name. */
export function serviceNameOf(unit: Unit, name: string): string {
  return lastOf(unit, "Timer", "Unit")?.value ?? name.replace(/\.timer$/, ".service");
}

const REPEATS = ["OnUnitActiveSec", "OnUnitInactiveSec"];
const FIRSTS = ["OnActiveSec", "OnBootSec", "OnStartupSec"];
const TRIGGERS = ["OnCalendar", ...REPEATS, ...FIRSTS];

/** Every trigger, setting and problem of a timer, in the order of its lines. Never throws. */
export function readTimer(timer: Timer, around: TimerSurroundings): Reading[] {
  const { unit, service } = timer;
  const found: Reading[] = [...unit.problems, ...(service?.problems ?? [])].map(({ path, line, text, reason }) => ({
    ...empty(line, text === "" ? path : text, "problem"),
    reason: unit.problems.some((one) => one.path === path) ? reason : `${path}: ${reason}`,
    hint: "Correct the unit; `systemd-analyze verify` says more.",
  }));
  const work = service === null ? fault(`there is no ${timer.serviceName}`) : workOf(service, timer, around);
  const triggers = unit.settings.filter(({ section, key }) => section === "Timer" && TRIGGERS.includes(key));
  // An empty assignment of any of them forgets all that stand before it.
  const live = triggers.slice(triggers.findLastIndex(({ value }) => value === "") + 1);
  const repeats = live.some(({ key }) => REPEATS.includes(key));
  const timing = timingOf(unit);
  for (const trigger of live) found.push(readTrigger(trigger, work, timing, repeats, timer, around));
  for (const setting of unit.settings)
    if (setting.section === "Timer" && !TRIGGERS.includes(setting.key))
      found.push({ ...empty(setting.line, written(setting), "setting"), notes: notesOn(setting) });
  if (live.length === 0)
    found.push({
      ...empty(1, timer.name, "left"),
      reason: unit.settings.length === 0 ? "it is empty or masked" : "it has no trigger",
      hint: "There is nothing to import.",
    });
  return found.toSorted((a, b) => a.line - b.line);
}

const empty = (line: number, text: string, kind: Reading["kind"]): Reading => ({
  line,
  kind,
  text,
  loop: null,
  reason: null,
  hint: null,
  notes: [],
});
const written = ({ key, value }: UnitSetting): string => `${key}=${value}`;

function notesOn({ key, value }: UnitSetting): readonly string[] {
  const yes = isYes(value) === true;
  switch (key) {
    case "WakeSystem":
      return yes ? ["drover does not wake the machine: what was missed meanwhile follows --catch-up"] : [];
    case "AccuracySec":
      return ["drover starts at the instant itself; --jitter spreads starts"];
    case "OnClockChange":
    case "OnTimezoneChange":
      return yes ? ["a change of the clock starts no loop"] : [];
    case "RandomizedDelaySec":
      return ["--jitter, which is always the same for one slot"];
    case "Persistent":
      return yes ? ["--catch-up latest: a missed start is made up for"] : [];
    default:
      return [];
  }
}

/** What the settings of a timer say of all its triggers. */
interface Timing {
  readonly jitterMs: number;
  readonly persistent: boolean;
}

function timingOf(unit: Unit): Timing {
  const delay = readSpan(lastOf(unit, "Timer", "RandomizedDelaySec")?.value ?? "0") ?? 0;
  return {
    jitterMs: Number.isFinite(delay) ? delay : 0,
    persistent: isYes(lastOf(unit, "Timer", "Persistent")?.value ?? "no") === true,
  };
}

function readTrigger(
  trigger: UnitSetting,
  work: Work | Fault,
  { jitterMs, persistent }: Timing,
  repeats: boolean,
  timer: Timer,
  around: TimerSurroundings,
): Reading {
  const base = empty(trigger.line, written(trigger), "loop");
  const left = (reason: string, hint = "Make a loop by hand: drover loop add."): Reading => ({
    ...base,
    kind: "left",
    reason,
    hint,
  });
  const wrong = (reason: string): Reading => ({
    ...base,
    kind: "problem",
    reason,
    hint: "`systemd-analyze calendar` and `timespan` say how systemd reads it.",
  });
  if (FIRSTS.includes(trigger.key) && repeats)
    return { ...base, kind: "setting", notes: ["a loop's first start comes one period after it is resumed"] };
  if (FIRSTS.includes(trigger.key))
    return left("it starts once after the machine or the timer does, which is no schedule", "Leave it to systemd.");
  if (isFault(work)) return left(work.fault, "Correct or import the service by hand: drover loop add.");

  const notes = [...work.notes];
  let schedule: ForeignSchedule;
  let policy: Partial<LoopPolicy> = { ...work.policy, catchUp: "none" };
  if (trigger.key === "OnCalendar") {
    const event = readCalendar(trigger.value, around.isZone);
    if (isFault(event)) return wrong(event.fault);
    const made = scheduleOf(event);
    if (isFault(made)) return left(made.fault);
    if (made.kind === "once") schedule = { ...made, zone: event.zone };
    else {
      try {
        const { fixedTime } = parseCron(made.expression);
        if (around.clockChanges(event.zone, made.expression))
          notes.push(
            fixedTime
              ? "a start that a change of the clock skips is left out by systemd; drover makes up for it at the end of the gap"
              : "in an hour that a change of the clock repeats systemd starts it in the first pass only, drover in both",
          );
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return left(error.message, "It never comes in systemd either.");
      }
      schedule = { kind: "cron", expression: made.expression, zone: event.zone };
    }
    policy = { ...policy, catchUp: persistent ? "latest" : "none" };
  } else {
    const everyMs = readSpan(trigger.value);
    if (everyMs === null) return wrong(`${JSON.stringify(trigger.value)} is no span of time`);
    if (everyMs < SCHEDULE_LIMITS.minEveryMs || everyMs > SCHEDULE_LIMITS.maxEveryMs)
      return left("a period of a loop is from a second to ten years");
    schedule = { kind: "interval", everyMs };
    if (trigger.key === "OnUnitInactiveSec")
      notes.push("systemd counts from the end of the last run, drover from one instant to the next");
    if (jitterMs >= everyMs) notes.push("its random delay is not shorter than its period, and is left out");
  }
  const isJittered = jitterMs > 0 && (schedule.kind !== "interval" || jitterMs < schedule.everyMs);
  const loop: ForeignLoop = {
    name: nameFrom(timer.name.replace(/\.timer$/, ""), "timer"),
    schedule,
    argv: work.argv,
    shell: work.shell,
    cwd: work.cwd,
    env: work.env,
    envPass: work.envPass,
    policy: { ...policy, labels: ["systemd"], ...(isJittered ? { jitterMs } : {}) },
    withheld: work.withheld,
  };
  return { ...base, loop, notes };
}

// --- The service -------------------------------------------------------------------------------------------------------

/** What a service runs, and how. */
interface Work extends Pick<ForeignLoop, "argv" | "shell" | "cwd" | "env" | "envPass" | "withheld" | "policy"> {
  readonly notes: readonly string[];
}

/** Settings that are read below, or say nothing about a run. */
const READ = new Set(
  `Description Documentation DefaultDependencies SourcePath StartLimitBurst StartLimitIntervalSec Type RemainAfterExit
  ExecStart ExecStartPre ExecStartPost ExecCondition WorkingDirectory Environment EnvironmentFile PassEnvironment User DynamicUser
  TimeoutStartSec TimeoutStopSec TimeoutSec RuntimeMaxSec Restart RestartSec`.split(/\s+/),
);

function workOf(service: Unit, timer: Timer, around: TimerSurroundings): Work | Fault {
  const notes: string[] = [];
  const get = (key: string): string | null => lastOf(service, "Service", key)?.value ?? null;
  const expand = specifiersOf(timer.serviceName, around);

  const type = get("Type") ?? "simple";
  if (type === "forking" || type === "dbus")
    return fault(`its service is of the type ${type}: it goes on in the background, where drover would end it`);
  const owner = get("User") === null ? (around.system ? "root" : around.user) : expand(get("User") ?? "");
  if (typeof owner !== "string") return owner;
  if (isYes(get("DynamicUser") ?? "no") === true) return fault("it runs as a user that is made for it");
  if (owner !== around.user && owner !== String(around.uid))
    return fault(`it runs as ${owner}, and drover runs as ${around.user}`);

  const script = scriptOf(service, expand, notes);
  if (isFault(script)) return script;
  const variables = variablesOf(service, expand, notes);
  if (isFault(variables)) return variables;
  const files = environmentFilesOf(service, expand, around, notes);
  if (isFault(files)) return files;
  const folder = expand(get("WorkingDirectory") ?? "");
  if (typeof folder !== "string") return folder;
  const cwd = folder.replace(/^-/, "");
  if (cwd !== "" && cwd !== "~" && !cwd.startsWith("/")) return fault(`its folder ${cwd} is no absolute path`);

  const untaken = new Set(
    service.settings
      .filter(({ section, key }) => (section === "Service" || section === "Unit") && !READ.has(key))
      .map(({ key }) => key),
  );
  if (untaken.size > 0) notes.push(`not taken from ${timer.serviceName}: ${[...untaken].join(", ")}`);
  const argv: ForeignLoop["argv"] =
    script.argv !== null && files.length === 0
      ? script.argv
      : ["/bin/sh", "-c", [...files, ...(script.splits ? ["set -f"] : []), script.text].join("; ")];
  return {
    argv,
    shell: argv !== script.argv,
    cwd: cwd === "~" || cwd === "" ? (cwd === "" && around.system ? "/" : null) : cwd,
    ...variables,
    policy: policyOf(type, get, notes),
    notes,
  };
}

function policyOf(type: string, get: (key: string) => string | null, notes: string[]): Partial<LoopPolicy> {
  const span = (...keys: readonly string[]): number | null => {
    const key = keys.find((one) => get(one) !== null);
    const ms = key === undefined ? null : readSpan(get(key) ?? "");
    return ms !== null && ms > 0 && ms <= SCHEDULE_LIMITS.maxEveryMs ? ms : null;
  };
  // A simple service has started as soon as it runs; of one that is oneshot the start is all of it.
  const timeoutMs = type === "oneshot" ? span("TimeoutStartSec", "TimeoutSec") : span("RuntimeMaxSec");
  const graceMs = span("TimeoutStopSec", "TimeoutSec");
  const policy: Partial<LoopPolicy> = {
    ...(timeoutMs === null ? {} : { timeoutMs }),
    ...(graceMs === null ? {} : { graceMs }),
  };
  const restart = get("Restart") ?? "no";
  if (restart === "no") return policy;
  if (restart === "always" || restart === "on-success") {
    notes.push(`Restart=${restart} would start it again after each success; a loop waits for its next instant`);
    return policy;
  }
  const burst = Number(get("StartLimitBurst") ?? "5");
  notes.push(`Restart=${restart}: --attempts, with pauses that double up to an hour`);
  return {
    ...policy,
    attempts: Number.isSafeInteger(burst) && burst >= 1 ? Math.min(burst, 1_000) : 5,
    backoffMs: span("RestartSec") ?? 100,
  };
}

// --- Commands ----------------------------------------------------------------------------------------------------------

interface Command {
  /** Its failure does not count. */
  readonly ignores: boolean;
  readonly words: readonly string[];
  /** `$` is a letter like any other. */
  readonly literal: boolean;
}

interface Script {
  /** Where it is one plain command. */
  readonly argv: ForeignLoop["argv"] | null;
  readonly text: string;
  /** Values of variables are split into words, which a shell would take for patterns of files. */
  readonly splits: boolean;
}

type Expand = (text: string) => string | Fault;

function commandsOf(service: Unit, key: string, expand: Expand, notes: string[]): readonly Command[] | Fault {
  const commands: Command[] = [];
  for (const { value } of allOf(service, "Service", key)) {
    const words = wordsOf(value);
    if (words === null) return fault(`a quote of ${key} is not closed`);
    let one: Word[] = [];
    for (const word of [...words, { text: ";", quoted: false }]) {
      if (word.text !== ";" || word.quoted) {
        one.push(word);
        continue;
      }
      if (one.length > 0) {
        const made = commandOf(one, key, expand, notes);
        if (isFault(made)) return made;
        commands.push(made);
      }
      one = [];
    }
  }
  return commands;
}

function commandOf([first, ...rest]: readonly Word[], key: string, expand: Expand, notes: string[]): Command | Fault {
  const prefix = /^[-@:+!]*/.exec(first?.text ?? "")?.[0] ?? "";
  const words: string[] = [];
  for (const word of [(first?.text ?? "").slice(prefix.length), ...rest.map(({ text }) => text)]) {
    const said = expand(word);
    if (typeof said !== "string") return said;
    words.push(said);
  }
  const [program = ""] = words;
  if (program === "") return fault(`a command of ${key} is empty`);
  if (program.includes("/") && !program.startsWith("/")) return fault(`${program} is no absolute path`);
  if (program.startsWith("|")) return fault("the prefix | is not known here");
  if (/[+!]/.test(prefix)) notes.push(`the prefix of ${program} gives it more rights: not taken`);
  if (prefix.includes("@")) {
    notes.push(`${program} is to be called ${words[1] ?? ""}: not taken`);
    words.splice(1, 1);
  }
  return { ignores: prefix.includes("-"), words, literal: prefix.includes(":") };
}

/** A command for a shell: words quoted, variables left to it. */
function shellText({ words, literal, ignores }: Command): {
  readonly text: string;
  readonly plain: boolean;
  readonly splits: boolean;
} {
  let plain = !ignores;
  let splits = false;
  const [program = "", ...args] = words;
  const texts = args.map((word) => {
    if (literal || !word.includes("$")) return shellWord(word);
    plain = false;
    const whole = /^\$([A-Za-z_]\w*)$/.exec(word);
    if (whole?.[1] !== undefined) {
      splits = true;
      return `$${whole[1]}`;
    }
    const parts = word.split(/(\$\$|\$\{[A-Za-z_]\w*\})/).filter((part) => part !== "");
    return parts
      .map((part) =>
        part === "$$" ? "'$'" : part.startsWith("${") && part.endsWith("}") ? `"${part}"` : shellWord(part),
      )
      .join("");
  });
  const text = [shellWord(program), ...texts].join(" ");
  return { text: ignores ? `{ ${text} || :; }` : text, plain, splits };
}

function scriptOf(service: Unit, expand: Expand, notes: string[]): Script | Fault {
  const parts: string[] = [];
  let plain: Command | null = null;
  let splits = false;
  for (const key of ["ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost"]) {
    const commands = commandsOf(service, key, expand, notes);
    if (isFault(commands)) return commands;
    if (key === "ExecStart" && commands.length === 0) return fault("its service starts nothing (ExecStart=)");
    for (const command of commands) {
      const made = shellText(command);
      splits ||= made.splits;
      plain = parts.length === 0 && made.plain && key === "ExecStart" ? command : null;
      parts.push(key === "ExecCondition" ? `{ ${made.text} || exit 0; }` : made.text);
    }
  }
  const [program, ...args] = plain?.words ?? [];
  return { argv: program === undefined ? null : [program, ...args], text: parts.join(" && "), splits };
}

// --- Variables ---------------------------------------------------------------------------------------------------------

function variablesOf(
  service: Unit,
  expand: Expand,
  notes: string[],
): Pick<ForeignLoop, "env" | "envPass" | "withheld"> | Fault {
  const env: Record<string, string> = {};
  const withheld = new Set<string>();
  for (const { value } of allOf(service, "Service", "Environment")) {
    const words = wordsOf(value);
    if (words === null) return fault("a quote of Environment= is not closed");
    for (const { text } of words) {
      const said = expand(text);
      if (typeof said !== "string") return said;
      const at = said.indexOf("=");
      const name = said.slice(0, Math.max(0, at));
      const checked = environmentName.safeParse(name);
      if (!checked.success) {
        notes.push(
          `the variable ${name === "" ? "without a name" : name} is not taken: ${checked.error.issues[0]?.message ?? ""}`,
        );
        continue;
      }
      delete env[name];
      withheld.delete(name);
      if (holdsSecret(name, said.slice(at + 1))) withheld.add(name);
      else env[name] = said.slice(at + 1);
    }
  }
  const envPass = allOf(service, "Service", "PassEnvironment")
    .flatMap(({ value }) => value.split(/\s+/))
    .filter((name) => environmentName.safeParse(name).success);
  return { env, envPass: [...new Set(envPass)], withheld: [...withheld] };
}

/** A line of a file of variables that systemd and a shell read the same. */
const PLAIN_LINE = /^\s*(?:#.*|[A-Za-z_]\w*=(?:[\w@%+=:,./-]*|'[^']*'|"[^"$`\\]*"))?\s*$/;

/** Files of variables, as lines of a shell that reads them at each start: what they hold is stored nowhere. */
function environmentFilesOf(
  service: Unit,
  expand: Expand,
  { readFile }: TimerSurroundings,
  notes: string[],
): readonly string[] | Fault {
  const lines: string[] = [];
  for (const { value } of allOf(service, "Service", "EnvironmentFile")) {
    const said = expand(value);
    if (typeof said !== "string") return said;
    const optional = said.startsWith("-");
    const path = optional ? said.slice(1) : said;
    if (!path.startsWith("/") || /[*?[]/.test(path)) return fault(`EnvironmentFile=${value} is no one file`);
    const bytes = readFile(path);
    if (bytes === null) notes.push(`its file of variables ${path} is not there, or may not be read`);
    const odd =
      bytes === null
        ? -1
        : new TextDecoder()
            .decode(bytes)
            .split("\n")
            .findIndex((line) => !PLAIN_LINE.test(line));
    if (odd >= 0)
      return fault(
        `line ${odd + 1} of ${path} means something else to a shell, which would read it: put quotes around its value`,
      );
    notes.push(`${path} is read at each start`);
    const source = `. ${shellWord(path)}`;
    lines.push(`set -a; ${optional ? `if [ -r ${shellWord(path)} ]; then ${source}; fi` : source}; set +a`);
  }
  return lines;
}

// --- Specifiers --------------------------------------------------------------------------------------------------------

/** `-` is `/`, and `\xHH` a byte. */
const unescaped = (text: string): string =>
  text
    .replaceAll("-", "/")
    .replace(/\\x([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));

function specifiersOf(unit: string, { system, user, uid, home, hostName, env }: TimerSurroundings): Expand {
  const full = unit.replace(/\.\w+$/, "");
  const at = full.indexOf("@");
  const [prefix, instance] = at < 0 ? [full, ""] : [full.slice(0, at), full.slice(at + 1)];
  const folder = (variable: string, own: string, shared: string): string =>
    system ? shared : env[variable] || `${home}/${own}`;
  const known: { readonly [letter: string]: string } = {
    "%": "%",
    n: unit,
    N: full,
    p: prefix,
    P: unescaped(prefix),
    i: instance,
    I: unescaped(instance),
    j: prefix.split("-").at(-1) ?? "",
    h: system && user === "root" ? "/root" : home,
    u: user,
    U: String(uid),
    H: hostName,
    l: hostName.split(".")[0] ?? hostName,
    t: system ? "/run" : env["XDG_RUNTIME_DIR"] || `/run/user/${uid}`,
    T: env["TMPDIR"] || "/tmp",
    V: "/var/tmp",
    S: folder("XDG_STATE_HOME", ".local/state", "/var/lib"),
    C: folder("XDG_CACHE_HOME", ".cache", "/var/cache"),
    E: folder("XDG_CONFIG_HOME", ".config", "/etc"),
  };
  return (text) => {
    let unknown: string | null = null;
    const said = text.replace(/%(.?)/gs, (whole, letter: string) => {
      if (!Object.hasOwn(known, letter)) unknown ??= whole;
      return known[letter] ?? whole;
    });
    return unknown === null ? said : fault(`the specifier ${unknown as string} is not known here`);
  };
}
