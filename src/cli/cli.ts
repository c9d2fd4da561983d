/** The command line: words to an operation, its answer to a person or a script, its error to an exit status. It knows no operation by name. */
import type { TranscriptEntry } from "../core/agent.ts";
import { describeDuration } from "../core/duration.ts";
import { AppError, BrokenAssert, ensure } from "../core/errors.ts";
import { nearest } from "../core/nearest.ts";
import { findEntry, operations, type Entry } from "../ops/index.ts";
import { laterPart } from "../ops/later.ts";
import type { RunTreeDocument, Warning } from "../ops/documents.ts";
import type { AnyOperation } from "../ops/operation.ts";
import { perform, performFollow } from "../ops/perform.ts";
import type { World } from "../ops/world.ts";
import { commonIn, parseArguments, requireGiven } from "./arguments.ts";
import { EXIT, RUN_EXIT } from "./exits.ts";
import { isTerminal, openScreen, type Screen } from "./screen.ts";
import { inertLine, problemLine } from "./text.ts";
import { isBroken, put } from "./put.ts";
import type { Waited } from "./wait.ts";

export interface CommandWorld extends World {
  /** Keeps a fault of our own for whoever mends it. */
  recordFault(error: unknown): { readonly id: string; readonly file: string | null };
}

/** Runs one command line to its end; answers the exit status. Everything it prints is for that one command. */
export async function runCommandLine(argv: readonly string[], world: CommandWorld): Promise<number> {
  const screen = await openScreen(world.env, world.clock.now());
  const end = argv.indexOf("--");
  // As far as can be told before the command is known: a value of one of its flags may look like this.
  let json = (end === -1 ? argv : argv.slice(0, end)).includes("--json");
  try {
    return await dispatch(argv, world, screen, (asked) => {
      json = asked;
    });
  } catch (error) {
    return await report(error, world, json);
  }
}

/** The one catch: an error becomes a line or a document, and a status. */
async function report(error: unknown, world: CommandWorld, json: boolean): Promise<number> {
  let known = error instanceof AppError ? error : null;
  if (known === null) {
    const { id, file } = world.recordFault(error);
    const what = error instanceof BrokenAssert ? "a promise of drover's own was broken" : "a fault of drover's own";
    known = new AppError("internal", "internal", `${what} (${id})`, {
      hint:
        file === null
          ? `It could not be kept: ${error instanceof Error ? error.message : String(error)}`
          : `It is kept in ${file}; please report it.`,
    });
  }
  const { code, message, hint, path, problems, kind } = known;
  if (json) {
    const document = {
      error: {
        code,
        message,
        ...(hint === undefined ? {} : { hint }),
        ...(path === undefined ? {} : { path }),
        ...(problems === undefined ? {} : { problems }),
      },
    };
    await put("stderr", `${JSON.stringify(document)}\n`);
  } else {
    const place = path === undefined || path === "" || message.includes(path) ? "" : ` [${path}]`;
    const lines = (problems ?? []).map((problem) => `${inertLine(problemLine(problem, world.cwd))}\n`);
    await put(
      "stderr",
      `${lines.join("")}${inertLine(`drover: ${message}${place}${hint === undefined ? "" : `. ${hint}`}`)}\n`,
    );
  }
  return EXIT[kind];
}

async function dispatch(
  argv: readonly string[],
  world: CommandWorld,
  screen: Screen,
  asksJson: (asked: boolean) => void,
): Promise<number> {
  if (argv[0] === "__complete") {
    const { completeFor } = await import("./complete.ts");
    const lines = await completeFor(argv.slice(1), world);
    await put("stdout", lines.map((line) => `${line}\n`).join(""));
    return 0;
  }
  const { entry, rest } = await findCommand(argv, screen);
  if (entry === null) return rest;
  const { operation } = await entry.load();
  const common = commonIn(operation, rest);
  asksJson(common.json);
  if (common.help) {
    const { commandHelp } = await import("./help.ts");
    const { pageOf } = await import("./page.ts");
    await put(
      "stdout",
      common.json ? `${JSON.stringify(pageOf(operation))}\n` : commandHelp(operation, screen.columns),
    );
    return 0;
  }
  const { input: given, json, yes } = parseArguments(operation, rest, world.cwd);
  requireGiven(operation, given);
  const { alone, positionals = [] } = operation.cli;
  if (alone !== undefined && Object.keys(given).every((key) => positionals.includes(key))) {
    const other = await findEntry(alone)?.load();
    ensure(other !== undefined, `there is an operation ${alone}`);
    await print(other.operation, await perform(world, other.operation, given, yes), screen, json);
    return 0;
  }
  const input =
    "cwd" in operation.input && given["cwd"] === undefined && operation.input["cwd"]?.fallback !== null
      ? { ...given, cwd: world.cwd }
      : given;

  const streams =
    operation.follow !== null &&
    (input[operation.cli.follows ?? "follow"] === true || (operation.cli.pieces === true && !json));
  if (streams) return stream(operation, input, world, screen, json, watchInterrupts());

  const answer = await perform(world, operation, withoutOwn(operation, input), yes);
  const said = (answer as { readonly warnings?: readonly Warning[] }).warnings;
  const { waits, exit } = operation.cli;
  const waiting =
    waits !== undefined &&
    (waits.when === undefined || input[waits.when] === true) &&
    (waits.unless === undefined || input[waits.unless] !== true);
  const run = waiting ? runOf(answer) : null;
  if (run === null) {
    await print(operation, answer, screen, json);
    return exit === undefined ? 0 : exit(answer as never);
  }

  if (!json && said !== undefined)
    for (const { message, hint } of said) await put("stderr", `${inertLine(`${message}: ${hint}`)}\n`);
  const starts = operation.start;
  const waited = await follow(run, world, screen, json, watchInterrupts(), {
    starts,
    limitMs: starts ? waitLimit(input["waitLimitMs"]) : null,
  });
  const full =
    "steps" in (answer as object)
      ? { ...waited.run, ...(said === undefined ? {} : { warnings: said }) }
      : { ...(answer as object), run: waited.run };
  if (json) await put("stdout", `${JSON.stringify(full)}\n`);
  else if (!starts) await print(operation, full, screen, false);
  else await summarise(waited, screen);
  return starts ? waited.exit : 0;
}

/** Finds the operation that the first words name. Prints help where there is none to run; then `entry` is null and `rest` the status. */
async function findCommand(
  argv: readonly string[],
  screen: Screen,
): Promise<
  { readonly entry: Entry; readonly rest: readonly string[] } | { readonly entry: null; readonly rest: number }
> {
  // `drover --json runs` is understood too.
  const leading = argv.findIndex((word) => word !== "--json");
  const before = leading === -1 ? argv : argv.slice(0, leading);
  const after = leading === -1 ? [] : argv.slice(leading);
  const [first, second] = after;
  if (first === undefined || first === "--help" || first === "-h" || first === "help") {
    const words = first === "help" ? after.slice(1).filter((word) => !word.startsWith("-")) : [];
    await put("stdout", await helpOn(words, screen, argv.includes("--json")));
    return { entry: null, rest: 0 };
  }
  const two = second === undefined ? undefined : findEntry(`${first}.${second}`);
  if (two !== undefined && two.hidden !== true) return { entry: two, rest: [...before, ...after.slice(2)] };
  const single = findEntry(first);
  if (single !== undefined) return { entry: single, rest: [...before, ...after.slice(1)] };
  const { groupHelp } = await import("./help.ts");
  const group = groupHelp(operations, first, screen.columns);
  if (group !== null) {
    if (second === "--help" || second === "-h") {
      await put("stdout", argv.includes("--json") ? await helpOn([first], screen, true) : group);
      return { entry: null, rest: 0 };
    }
    const verbs = operations
      .filter((entry) => entry.hidden !== true && entry.name.startsWith(`${first}.`))
      .map((entry) => entry.name.slice(first.length + 1));
    const part = laterPart([first, second ?? ""]);
    if (part !== null) throw notAvailable(`${first} ${second}`, part);
    const near = second === undefined ? null : nearest(second, verbs);
    throw new AppError(
      "invalid",
      "unknown_command",
      second === undefined || second.startsWith("-")
        ? `\`drover ${first}\` needs a command`
        : `there is no command \`drover ${first} ${second}\``,
      { hint: near === null ? `Commands: ${verbs.join(", ")}.` : `Did you mean \`drover ${first} ${near}\`?` },
    );
  }
  const part = laterPart([first, second ?? ""]) ?? laterPart([first]);
  if (part !== null) throw notAvailable(first, part);
  const names = operations.filter((entry) => entry.hidden !== true).map((entry) => entry.name.replaceAll(".", " "));
  const near =
    nearest([first, second].filter((word) => word !== undefined && !word.startsWith("-")).join(" "), names) ??
    nearest(first, names);
  throw new AppError(
    "invalid",
    first.startsWith("-") ? "unknown_flag" : "unknown_command",
    first.startsWith("-")
      ? `there is no flag ${JSON.stringify(first)} before a command`
      : `there is no command \`drover ${first}\``,
    { hint: near === null ? "`drover --help` lists all commands." : `Did you mean \`drover ${near}\`?` },
  );
}

/** What `drover help` prints, or its document. Errors: AppError invalid `unknown_command`, `not_available`. */
async function helpOn(words: readonly string[], screen: Screen, json: boolean): Promise<string> {
  const { commandHelp, commandList, groupHelp, isOf, overview, topicHelp } = await import("./help.ts");
  const { pageOf } = await import("./page.ts");
  const { TOPICS } = await import("./topics.ts");
  const document = (value: unknown): string => `${JSON.stringify(value)}\n`;
  const [first, second] = words;
  if (first === undefined) {
    if (!json) return overview(operations, screen.columns);
    return document({
      commands: commandList(operations),
      topics: TOPICS.map(({ name, summary }) => ({ name, summary })),
    });
  }
  const topic = TOPICS.find(({ name }) => name === first);
  if (topic !== undefined) return json ? document(topic) : topicHelp(topic, screen.columns);
  const entry = (second === undefined ? undefined : findEntry(`${first}.${second}`)) ?? findEntry(first);
  if (entry !== undefined && entry.hidden !== true) {
    const { operation } = await entry.load();
    return json ? document(pageOf(operation)) : commandHelp(operation, screen.columns);
  }
  const group = second === undefined ? groupHelp(operations, first, screen.columns) : null;
  if (group !== null)
    return json ? document({ commands: commandList(operations.filter(({ name }) => isOf(name, first))) }) : group;
  const part = laterPart(second === undefined ? [first] : [first, second]);
  if (part !== null) throw notAvailable(words.join(" "), part);
  const known = operations.flatMap(({ name, hidden }) => (hidden === true ? [] : [name.replaceAll(".", " ")]));
  const near = nearest(words.join(" "), [...known, ...TOPICS.map(({ name }) => name)]);
  throw new AppError("invalid", "unknown_command", `there is no help on ${JSON.stringify(words.join(" "))}`, {
    hint: near === null ? "`drover help` lists commands and topics." : `Did you mean \`drover help ${near}\`?`,
  });
}

const notAvailable = (command: string, part: string): AppError =>
  new AppError("invalid", "not_available", `\`drover ${command}\` needs ${part}, which this version does not have`, {
    hint: "`drover --help` lists what there is.",
  });

const withoutOwn = (operation: AnyOperation, input: { readonly [key: string]: unknown }) =>
  Object.fromEntries(Object.entries(input).filter(([key]) => operation.cli.own?.includes(key) !== true));

/** The run in an answer: the answer itself, or its `run`. */
function runOf(answer: unknown): RunTreeDocument | null {
  const holder = answer as { readonly steps?: unknown; readonly run?: RunTreeDocument | null };
  return holder.steps === undefined ? (holder.run ?? null) : (answer as RunTreeDocument);
}

const waitLimit = (given: unknown): number =>
  typeof given === "number" ? given : process.stdin.isTTY && isTerminal("stdout") ? Number.POSITIVE_INFINITY : 0;

async function print(operation: AnyOperation, answer: unknown, screen: Screen, json: boolean): Promise<void> {
  if (json) return put("stdout", `${JSON.stringify(answer)}\n`);
  const { views } = await import("./views/index.ts");
  const view = await views[operation.name]?.();
  await put("stdout", view === undefined ? `${JSON.stringify(answer, null, 2)}\n` : view(answer as never, screen));
  // On standard error, so that a program that reads a list is not handed a row that is none, and a person still sees it.
  const { items, next } = answer as { readonly items?: readonly unknown[]; readonly next?: string | null };
  if (items !== undefined && typeof next === "string")
    await put("stderr", `${items.length} shown, there are more; next: --cursor ${inertLine(next)}\n`);
}

/** A piece of output, or an entry of a transcript. */
interface Piece {
  readonly text: string;
  readonly entry?: TranscriptEntry;
}

const pieceText = ({ text, entry }: Piece, draw: (entry: TranscriptEntry, screen: Screen) => string, screen: Screen) =>
  entry === undefined ? text : draw(entry, screen);

/** Prints items as they come. Errors before the first item are errors of the command. */
async function stream(
  operation: AnyOperation,
  input: unknown,
  world: World,
  screen: Screen,
  json: boolean,
  interrupts: Interrupts,
): Promise<number> {
  const { itemViews } = await import("./views/index.ts");
  const itemView = json ? undefined : await itemViews[operation.name]?.();
  const { entryText } = await import("./views/transcript.ts");
  const { watches } = operation.cli;
  const given = input as { readonly [key: string]: unknown };
  const watched =
    watches !== undefined && given["follow"] === true && given["raw"] !== true && !json ? given[watches] : undefined;
  const [{ openLiveLine }, { watchRun }] = await Promise.all([import("./live.ts"), import("./wait.ts")]);
  const live = openLiveLine(watched === undefined ? { ...screen, redraws: false } : screen, () => world.clock.now());
  const over = new AbortController();
  const watching =
    typeof watched === "string" && screen.redraws ? watchRun(world, watched, live, over.signal) : Promise.resolve();
  try {
    return await printAll();
  } finally {
    over.abort();
    live.close();
    await watching;
  }

  async function printAll(): Promise<number> {
    for await (const item of performFollow(world, operation, input, interrupts.first)) {
      const text = json
        ? `${JSON.stringify(item)}\n`
        : itemView === undefined
          ? pieceText(item as Piece, entryText, screen)
          : itemView(item as never, screen);
      await live.print("stdout", text);
      if (isBroken()) return 0;
    }
    return interrupts.first.aborted ? RUN_EXIT.interrupted : 0;
  }
}

async function follow(
  run: RunTreeDocument,
  world: World,
  screen: Screen,
  json: boolean,
  interrupts: Interrupts,
  { starts, limitMs }: { readonly starts: boolean; readonly limitMs: number | null },
): Promise<Waited> {
  const cancel = async (): Promise<void> => {
    const entry = findEntry("cancel");
    if (entry === undefined) return;
    const { operation } = await entry.load();
    await perform(world, operation, { run: run.id, reason: "interrupted (Ctrl-C)" });
  };
  // A cancelled run whose processes live needs a daemon that ends them.
  if (!starts && run.finishedAt === null && "absent" in (await world.askDaemon()))
    await world.startDaemon("until_idle");
  const { waitForRun } = await import("./wait.ts");
  return waitForRun(world, screen, {
    runId: run.id,
    limitMs,
    prints: starts && !json,
    interrupted: starts ? interrupts.first : new AbortController().signal,
    cancel,
    say: (line) => void put("stderr", `${inertLine(line)}\n`),
  });
}

/** How a run ended, on standard error, where a person looks or something went wrong. */
async function summarise({ run, exit }: Waited, screen: Screen): Promise<void> {
  if (run.finishedAt === null || (exit === 0 && !screen.redraws)) return;
  const usual = run.usualMs === null || !screen.redraws ? "" : ` (usually ${shortTime(run.usualMs)})`;
  const took = run.durationMs === null ? "" : ` after ${shortTime(run.durationMs)}${usual}`;
  const why = run.error === null ? (run.reason === null ? "" : `: ${run.reason}`) : `: ${run.error.message}`;
  const paint = exit === 0 ? screen.good : screen.bad;
  const drawn = screen.redraws ? paint(run.status) : run.status;
  const mend = run.remedy === null ? "" : `mend: ${inertLine(run.remedy.words)}\n`;
  await put("stderr", `${run.id} ${drawn}${inertLine(`${took}${why}`)}\n${mend}`);
}

/** To the tenth of a second below a minute, as a stopwatch has it. */
const shortTime = (ms: number): string =>
  ms < 1_000 ? `${ms}ms` : ms < 60_000 ? `${Math.floor(ms / 100) / 10}s` : describeDuration(ms);

interface Interrupts {
  /** Aborted by the first Ctrl-C. */
  readonly first: AbortSignal;
}

/** The first Ctrl-C is a request, the second leaves at once. */
function watchInterrupts(): Interrupts {
  const first = new AbortController();
  process.on("SIGINT", () => {
    if (first.signal.aborted) process.exit(RUN_EXIT.interrupted);
    first.abort();
  });
  return { first: first.signal };
}
