import { closeSync, openSync, readdirSync, readSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { readTimer, serviceNameOf, type TimerSurroundings } from "../../triggers/timer.ts";
import { readUnit, type Unit, UNIT_LIMITS, type UnitSource } from "../../triggers/unit-file.ts";
import { badInput, flag, text, texts } from "../fields.ts";
import { requireHostZone } from "../loops/host-zone.ts";
import {
  homeOf,
  importAnswerShape,
  importExit,
  importLoops,
  type ImportSource,
  surroundingsOf,
} from "./import-plan.ts";
import { lookAt } from "../look.ts";
import { defineOperation, type LocalContext } from "../operation.ts";

export const operation = defineOperation({
  name: "import.systemd",
  where: "local",
  raises: ["conflict", "unauthorised"],
  summary: "Make paused loops of systemd's timers, and say of each trigger what was understood",
  input: {
    units: texts("a timer by its name, a file of one, or a folder; usually all that you wrote for your user", {
      placeholder: "UNIT",
      completes: "file",
    }),
    system: flag("timers of the system; without UNIT those in /etc/systemd/system"),
    prefix: text("begins the name of each loop", { placeholder: "TEXT" }),
    dryRun: flag("only say what would be made"),
    skipInvalid: flag("import the rest although some triggers are wrong"),
  },
  output: importAnswerShape,
  cli: {
    positionals: ["units"],
    exit: importExit,
    exits: [2],
    examples: [
      "import systemd --dry-run",
      "import systemd backup.timer",
      "import systemd ./units --prefix old-",
      "import systemd --system logrotate.timer --dry-run",
    ],
    notes: [
      "Reads the files of units with their drop-ins, and asks nothing of systemd. Each trigger of a timer is a loop of its own.",
      "Loops arrive paused, all or none: look at each with `loop show`, stop the timer with `systemctl --user disable --now`, then",
      "`loop resume`. Importing again makes no second one of a loop that is there.",
    ],
  },
  async run(context, input) {
    const hostZone = requireHostZone(context.env["TZ"], context.hostZone);
    const given = input.units ?? [];
    const timers =
      given.length === 0
        ? timersIn(ownFolder(context, input.system), input.system)
        : found(context, given, input.system);
    if (timers.length === 0)
      throw new AppError("not_found", "no_timers", `there is no timer in ${ownFolder(context, input.system)}`, {
        hint: "Name one, or the file or folder that holds it.",
      });
    const shared = surroundingsOf(context, hostZone);
    const sources: ImportSource[] = timers.map((timer) => ({
      name: timer.name,
      readings: read(timer, context, shared),
    }));
    return importLoops(context, hostZone, {
      sources,
      prefix: input.prefix,
      dryRun: input.dryRun,
      skipInvalid: input.skipInvalid,
      reason: "imported from systemd",
      notes: [
        "what a service reads from the environment of systemd's manager is not there: commands get the usual variables, see --env and --env-pass",
        "systemd goes on with its timers until you stop them: systemctl --user disable --now NAME.timer",
      ],
    });
  },
});

/** A timer and where its units are looked for. */
interface Place {
  readonly name: string;
  readonly folders: readonly string[];
  readonly system: boolean;
}

function read(
  { name, folders, system }: Place,
  context: LocalContext,
  shared: ReturnType<typeof surroundingsOf>,
): ImportSource["readings"] {
  const around: TimerSurroundings = {
    ...shared,
    system,
    uid: process.getuid?.() ?? 0,
    home: homeOf(context),
    hostName: hostname(),
    env: context.env,
    readFile: (path) => bytesOf(path, UNIT_LIMITS.bytes),
  };
  const unit = load(name, folders) ?? { settings: [], problems: [] };
  const serviceName = serviceNameOf(unit, name);
  return readTimer({ name, unit, serviceName, service: load(serviceName, folders) }, around);
}

// --- Where units are -----------------------------------------------------------------------------------------------------

const configHome = ({ env }: LocalContext, home: string): string => env["XDG_CONFIG_HOME"] || join(home, ".config");

/** Where people write their own. */
const ownFolder = (context: LocalContext, system: boolean): string =>
  system ? "/etc/systemd/system" : join(configHome(context, homeOf(context)), "systemd/user");

/** Where systemd looks for units, what it finds first wins (systemd.unit(5)). */
function searchPath(context: LocalContext, system: boolean): readonly string[] {
  if (system) return ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"].map((folder) => `${folder}/systemd/system`);
  const home = homeOf(context);
  const runtime = context.env["XDG_RUNTIME_DIR"];
  return [
    ownFolder(context, false),
    "/etc/systemd/user",
    ...(runtime === undefined || runtime === "" ? [] : [join(runtime, "systemd/user")]),
    "/run/systemd/user",
    join(context.env["XDG_DATA_HOME"] || join(home, ".local/share"), "systemd/user"),
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
    "/lib/systemd/user",
  ];
}

const isTimer = (name: string): boolean => name.endsWith(".timer") && name !== ".timer";
/** `x@.timer` is a form for others. */
const isTemplate = (name: string): boolean => /@\.\w+$/.test(name);

function timersIn(folder: string, system: boolean, more: readonly string[] = []): readonly Place[] {
  return namesIn(folder)
    .filter((name) => isTimer(name) && !isTemplate(name))
    .map((name) => ({ name, folders: [folder, ...more], system }));
}

/** The timers that words name. Errors: AppError not_found `timer_not_found`, with all that are not there; invalid for a template. */
function found(context: LocalContext, given: readonly string[], system: boolean): readonly Place[] {
  const places: Place[] = [];
  const missing: string[] = [];
  for (const word of given) {
    const path = resolve(context.cwd, word);
    const about = lookAt(path);
    if (word.includes("/") || (about !== null && (about.isDirectory() || isTimer(word)))) {
      const isSystems = system || /\/systemd\/system(?:\/|$)/.test(path);
      const usual = searchPath(context, isSystems);
      if (about?.isDirectory() === true) places.push(...timersIn(path, isSystems, usual));
      else if (about === null) missing.push(word);
      else if (isTimer(path))
        places.push({ name: basename(path), folders: [dirname(path), ...usual], system: isSystems });
      else
        throw badInput(
          "units",
          `${word} is no timer`,
          "Name a file that ends in .timer; its service is found beside it.",
        );
      continue;
    }
    const name = isTimer(word) ? word : `${word}.timer`;
    const folders = searchPath(context, system);
    if (load(name, folders) === null) missing.push(word);
    else places.push({ name, folders, system });
  }
  const template = places.find(({ name }) => isTemplate(name));
  if (template !== undefined)
    throw badInput(
      "units",
      `${template.name} is a template`,
      `Name one of it, as in ${template.name.replace("@", "@NAME")}.`,
    );
  if (missing.length > 0)
    throw new AppError(
      "not_found",
      "timer_not_found",
      `there is no timer ${missing.map((word) => JSON.stringify(word)).join(", ")}`,
      {
        path: "units",
        hint: system
          ? "`systemctl list-timers --all` lists those of the system."
          : "`systemctl --user list-timers --all` lists yours; for one of the system add --system.",
      },
    );
  return places;
}

// --- Their files ---------------------------------------------------------------------------------------------------------

/** A unit with its drop-ins; null where there is none. */
function load(name: string, folders: readonly string[]): Unit | null {
  const template = name.replace(/@[^@]+(?=\.\w+$)/, "@");
  const names = template === name ? [name] : [name, template];
  const main = names
    .flatMap((one) => folders.map((folder) => join(folder, one)))
    .map((path) => ({ path, bytes: bytesOf(path, UNIT_LIMITS.bytes + 1) }))
    .find((source): source is UnitSource => source.bytes !== null);
  if (main === undefined) return null;
  const dropIns = new Map<string, string>();
  for (const one of names)
    for (const folder of folders)
      for (const file of namesIn(join(folder, `${one}.d`)))
        if (file.endsWith(".conf") && !dropIns.has(file)) dropIns.set(file, join(folder, `${one}.d`, file));
  const more = [...dropIns]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([, path]) => ({ path, bytes: bytesOf(path, UNIT_LIMITS.bytes + 1) ?? new Uint8Array() }));
  return readUnit([main, ...more]);
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder).toSorted();
  } catch {
    return []; // not there, or not ours to look into: nothing is found in it
  }
}

/** The first bytes of a file; null where it is not there, or cannot be read. A link to `/dev/null` is an empty one. */
function bytesOf(path: string, most: number): Uint8Array | null {
  try {
    const about = statSync(path);
    if (about.isCharacterDevice()) return new Uint8Array();
    if (!about.isFile()) return null;
    const bytes = new Uint8Array(Math.min(about.size, most));
    const descriptor = openSync(path, "r");
    try {
      return bytes.subarray(0, readSync(descriptor, bytes, 0, bytes.length, 0));
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return null; // said where it is missed
  }
}
