import { readdir, readFile, stat } from "node:fs/promises";
import { resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { readCrontab } from "../../triggers/crontab.ts";
import { badInput, type Field, flag, text, texts } from "../fields.ts";
import { requireHostZone } from "../loops/host-zone.ts";
import { importAnswerShape, importExit, importLoops, type ImportSource, surroundingsOf } from "./import-plan.ts";
import { defineOperation, type LocalContext } from "../operation.ts";

interface GivenFile {
  readonly name: string;
  readonly base64: string;
}

/** Files that the command line reads, with what they are called. */
const files: Field<readonly GivenFile[] | undefined> = {
  ...texts("a crontab, - for standard input; usually `crontab -l` says it", { placeholder: "FILE", completes: "file" }),
  schema: { type: "array", items: { type: "object" } },
  read: (given, path, { cwd, readBytes }, before) => [
    ...((before as readonly GivenFile[] | undefined) ?? []).map((one) => ({ ...one })),
    given === "-"
      ? { name: "standard input", base64: readBytes("-", path) }
      : { name: given, base64: readBytes(resolve(cwd, given), path) },
  ],
  check(value, path) {
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw badInput(path, `${path} must be a list`);
    return value.map((one: unknown, index) => {
      const { name, base64 } = (one ?? {}) as Partial<GivenFile>;
      if (typeof name !== "string" || typeof base64 !== "string")
        throw badInput(`${path}[${index}]`, `${path}[${index}] must be {"name", "base64"}`);
      return { name, base64 };
    });
  },
};

export const operation = defineOperation({
  name: "import.crontab",
  where: "local",
  raises: ["conflict", "unauthorised"],
  summary: "Make paused loops of a crontab, and say of each line what was understood",
  input: {
    files,
    system: flag("the format of /etc/crontab, with a user in each line; without FILE /etc/crontab and /etc/cron.d"),
    prefix: text("begins the name of each loop", { placeholder: "TEXT" }),
    dryRun: flag("only say what would be made"),
    skipInvalid: flag("import the rest although some lines are wrong"),
  },
  output: importAnswerShape,
  cli: {
    positionals: ["files"],
    exit: importExit,
    exits: [2],
    examples: [
      "import crontab --dry-run",
      "import crontab",
      "import crontab my.crontab --prefix old-",
      "import crontab --system /etc/cron.d/backup",
    ],
    notes: [
      "Loops arrive paused, all or none: look at each with `loop show`, take its line out of the crontab, then `loop resume`.",
      "Importing again makes no second one of a loop that is there. With a wrong line nothing is imported, and it ends with 2.",
    ],
  },
  async run(context, input) {
    const hostZone = requireHostZone(context.env["TZ"], context.hostZone);
    const around = { ...surroundingsOf(context, hostZone), system: input.system };
    const given =
      input.files?.map(({ name, base64 }) => ({ name, bytes: new Uint8Array(Buffer.from(base64, "base64")) })) ??
      (input.system ? await systemFiles(context) : [await ownCrontab(context)]);
    const sources: ImportSource[] = given.map(({ name, bytes }) => ({ name, readings: readCrontab(bytes, around) }));
    if (!input.system && input.files !== undefined) for (const source of sources) refuseSystems(source, context.cwd);
    return importLoops(context, hostZone, {
      sources,
      prefix: input.prefix,
      dryRun: input.dryRun,
      skipInvalid: input.skipInvalid,
      reason: "imported from a crontab",
      notes: [
        "cron gives a command PATH=/usr/bin:/bin and little else; here it gets your PATH, completed, and the usual variables",
        "cron mails what a command prints; here `drover logs` keeps it",
        "cron goes on with its own lines until you take them out",
      ],
    });
  },
});

/**
 * A crontab of the system's, read as a person's, would run the user's name as a command. It is one by its place, or where
 * each line goes on with `root`. Errors: AppError invalid `bad_input`.
 */
function refuseSystems({ name, readings }: ImportSource, cwd: string): void {
  const commands = readings.flatMap(({ loop }) => (loop === null ? [] : [loop.argv.at(-1) ?? ""]));
  const isPlaced = /^\/etc\/(?:crontab|cron\.d\/[^/]+)$/.test(resolve(cwd, name));
  if (!isPlaced && !(commands.length > 0 && commands.every((command) => /^root\s/.test(command)))) return;
  throw badInput(
    "files",
    `${name} is a crontab of the system's: each line names a user before its command`,
    "Give --system.",
  );
}

interface Crontab {
  readonly name: string;
  readonly bytes: Uint8Array;
}

/** Errors: AppError not_found `no_crontab`, `no_crontab_program`, unreachable `crontab_failed`. */
async function ownCrontab(context: LocalContext): Promise<Crontab> {
  const answer = await context.ask(["crontab", "-l"]);
  const giveFile = "Give a file that holds the crontab, or - for standard input.";
  if (answer === null)
    throw new AppError("not_found", "no_crontab_program", "the program `crontab` is not found", { hint: giveFile });
  const { exit, stdout, stderr, cut, timedOut } = answer;
  const said = stderr.trim().split("\n")[0]?.slice(0, 200) ?? "";
  if (exit === 1 && /no crontab/i.test(stderr))
    throw new AppError("not_found", "no_crontab", said, {
      hint: "`drover import crontab --system` reads the system's; a FILE any other.",
    });
  if (exit !== 0 || stdout === null || cut)
    throw new AppError(
      "unreachable",
      "crontab_failed",
      timedOut
        ? "`crontab -l` does not answer in time"
        : cut
          ? "`crontab -l` prints more than limits.inquiryBytes"
          : `\`crontab -l\` failed${said === "" ? "" : `: ${said}`}`,
      { hint: giveFile },
    );
  return { name: "crontab", bytes: stdout };
}

/** `/etc/crontab` and what cron reads beside it. Errors: AppError not_found `no_crontab`, invalid `file_unreadable`. */
async function systemFiles({ settings }: LocalContext): Promise<readonly Crontab[]> {
  const folder = "/etc/cron.d";
  const names = await readdir(folder).catch(() => []); // not every system has it
  const paths = [
    "/etc/crontab",
    // cron takes no other names, so that copies of editors and packages are none.
    ...names
      .filter((name) => /^[\w-]+$/.test(name))
      .toSorted()
      .map((name) => `${folder}/${name}`),
  ];
  const found: Crontab[] = [];
  for (const path of paths) {
    try {
      const about = await stat(path);
      if (!about.isFile()) continue;
      if (about.size > settings.limits.inquiryBytes)
        throw badInput(path, `${path} is larger than limits.inquiryBytes`, "Give the files one by one.", "too_large");
      found.push({ name: path, bytes: new Uint8Array(await readFile(path)) });
    } catch (error) {
      if (error instanceof AppError) throw error;
      const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
      if (code === "ENOENT") continue;
      throw badInput(path, `${path} cannot be read: ${code}`, "Give the files one by one.", "file_unreadable");
    }
  }
  if (found.length === 0)
    throw new AppError("not_found", "no_crontab", "there is no /etc/crontab and nothing in /etc/cron.d", {
      hint: "Give the file.",
    });
  return found;
}
