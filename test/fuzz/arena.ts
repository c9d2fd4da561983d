/**
 * Everything that the command line does, in this process: the real operations and surfaces on a store in memory, a simulated
 * host at work on it, and a home of its own on the disk. Whatever is tried ends as the contract says, or fails here.
 */
import fs, { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type CommandWorld, runCommandLine } from "../../src/cli/cli.ts";
import { EXIT, exitsOf } from "../../src/cli/exits.ts";
import { AppError, type ErrorDocument, fromDocument, toDocument } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/ports.ts";
import { makeWorld } from "../../src/main/world.ts";
import { outputFiles } from "../../src/main/host.ts";
import { readSettings } from "../../src/ops/config/settings.ts";
import { isDeep, type Json } from "../../src/ops/fields.ts";
import { findEntry, operations } from "../../src/ops/index.ts";
import { type ActContext, type AnyOperation, raisedBy } from "../../src/ops/operation.ts";
import { perform, performFollow, runIn } from "../../src/ops/perform.ts";
import { placesOf } from "../../src/ops/places.ts";
import type { World } from "../../src/ops/world.ts";
import { differenceFrom } from "../../src/ops/shape.ts";
import { type Sql, sql } from "../../src/store/sql.ts";
import { testAgents, testTrees } from "../operations.ts";
import { createStage, type Stage } from "../sim/stage.ts";
import { examplesOf, type Input, type Pool } from "./grammar.ts";
import { PATIENCE_MS, type Watchdog } from "./watchdog.ts";

/** Files that people write elsewhere, as they should be. */
export const FILES: { readonly [name: string]: string } = {
  "drover.yaml": `version: 1
loops:
  declared:
    every: 1h
    command: [echo, "a b"]
    cwd: /
    env: { A: "1" }
    attempts: 2
    backoff: 10s
    labels: [night]
  asked:
    cron: 30 2 * * mon-fri
    tz: Europe/Berlin
    agent:
      provider: claude
      prompt: |
        Do what is to be done.
      permission: read-only
    cwd: /
accounts:
  claude:night: { env: { A: "1" } }
limits:
  provider:claude: 2
`,
  "workflow.yaml": `name: fuzz
inputs: { test: { type: string, default: npm test }, n: { type: integer } }
env: { A: "\${{ inputs.test }}" }
defaults: { worktree: required, timeout: 1h30m }
steps:
  - { id: check, type: command, shell: $TEST, env: { TEST: "\${{ env.A }}" }, continueOnFailure: true }
  - id: fix
    needs: [check]
    if: steps.check.exitCode != 0 && has(run.id)
    type: agent
    provider: claude
    prompt: |
      It fails: \${{ steps.check.stdoutTail }} \${{ inputs.n + 1 }}
    output: { type: object, required: [files], properties: { files: { type: array, items: { type: string } } } }
  - id: each
    needs: [fix]
    foreach: \${{ steps.fix.output.files.filter(one, one.startsWith("a")) }}
    type: check
    command: [sh, -c, 'echo "$1"', sh, "\${{ item }}"]
    retry: { attempts: 2, backoff: 10s }
  - { id: agree, type: approval, needs: [each], if: always(), question: Good?, default: reject }
`,
  crontab: `SHELL=/bin/sh
MAILTO=""
# a comment
*/5 * * * * echo a%b
30 2 * * 1-5 cd / && true >/dev/null 2>&1
@daily true
CRON_TZ=Europe/Berlin
0 9 1 jan,jul * true
`,
  "x.timer": `[Unit]
Description=a timer
[Timer]
OnCalendar=Mon..Fri *-*-* 02:30:00 Europe/Berlin
OnCalendar=hourly
Persistent=true
RandomizedDelaySec=5m
[Install]
WantedBy=timers.target
`,
  "x.service": `[Unit]
Description=a service
[Service]
Type=oneshot
WorkingDirectory=/
Environment=A=1 "B=a b"
ExecStart=/bin/echo "a b" $A \\
  more
TimeoutStartSec=90
`,
};

const build = { version: "0.0.0", id: "fuzz" };
/** Items of a stream that are looked at before its reader has had enough. */
const ITEMS = 20;
/** How long something is watched that goes on. */
const WATCHED_MS = 100;
const KEPT_TEXTS = 400;
const KEPT_INPUTS = 20;

/** Words that no person should read: a stack, and what libraries say. */
export const LIBRARY = /\bat .*\.[jt]s:\d+|Too (big|small)|expected string|Invalid input|Unexpected token/;

/** Error codes of the reference, each with the kinds that it may have. */
const codes = new Map(
  [
    ...readFileSync(fileURLToPath(new URL("../../docs/reference/errors.md", import.meta.url)), "utf8").matchAll(
      /^\| `(\w+)` \| ([^|]*) \|/gm,
    ),
  ].map(([, code = "", kinds = ""]) => [code, kinds]),
);

/** Fails unless an error is one that somebody can act on, under a code and of a kind that are written down. */
export function checkError(error: unknown, what: string, operation: AnyOperation | null): asserts error is AppError {
  if (!(error instanceof AppError)) throw new Error(`${what}: a fault of our own`, { cause: error });
  const { kind, code, message, problems } = error;
  const at = `${what}: ${code} (${message})`;
  if (kind === "internal") throw new Error(`${at}: internal`, { cause: error });
  const known = codes.get(code);
  if (known === undefined) throw new Error(`${at} is not in docs/reference/errors.md`, { cause: error });
  if (!known.includes(kind))
    throw new Error(`${at} is ${kind} there, which the reference does not have`, { cause: error });
  if (operation !== null && !raisedBy(operation).includes(kind))
    throw new Error(`${at}: ${operation.name} does not say in \`raises\` that it ends with ${kind}`, { cause: error });
  if (message === "" || LIBRARY.test(message)) throw new Error(`${at}: no words for people`, { cause: error });
  for (const one of problems ?? [])
    if (!codes.has(one.code) || LIBRARY.test(one.message))
      throw new Error(`${at}: the problem ${one.code} (${one.message})`, { cause: error });
}

/** A statement whose text is made here: tables have no other way into one. */
const plain = (text: string): Sql => sql(Object.assign([text], { raw: [text] }));

/**
 * Tables that may change while something is refused: a host that is woken renews its lease, and the content of a prompt is
 * kept under its digest before what names it is stored; one that nothing names goes with retention (ADR 0013).
 */
const LOOSE = new Set(["hosts", "prompts", "prompt_looks"]);

/** All rows of all other tables. */
function dumpOf(stage: Stage): string {
  const tables = stage.rows<{ name: string }>(
    sql`select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name`,
  );
  return tables
    .filter(({ name }) => !LOOSE.has(name))
    .flatMap(({ name }) => [
      name,
      ...stage.rows(plain(`select * from ${name} order by 1, 2`)).map((row) => JSON.stringify(row)),
    ])
    .join("\n");
}

/** Every file below a folder with its size and the moment of its last change. */
function filesBelow(folder: string): string {
  return (
    (readdirSync(folder, { recursive: true }) as string[])
      // A lock may be taken to find out that it cannot be done.
      .filter((name) => !name.endsWith(".lock"))
      .toSorted()
      .map((name) => {
        const about = statSync(join(folder, name), { throwIfNoEntry: false });
        return `${name} ${about?.isFile() === true ? `${about.size} ${about.mtimeMs}` : "folder"}`;
      })
      .join("\n")
  );
}

export interface Arena {
  readonly folder: string;
  readonly stage: Stage;
  readonly world: CommandWorld;
  /** What the daemon gives to an operation that it is asked for. */
  readonly context: ActContext;
  readonly pool: Pool;
  readonly examples: ReadonlyMap<string, readonly Input[]>;
  /** What `crontab -l` and `systemctl` print when they are asked; null where they are not there. */
  says: Uint8Array | null;
  /** Tries an operation with any JSON; fails unless it ends as its contract says. Answers the answer, or null for a refusal. */
  tries(operation: AnyOperation, input: Json): Promise<unknown>;
  /** Why the last one was refused. */
  refusal: AppError | null;
  /** Tries any words of a command line. */
  triesWords(operation: AnyOperation, words: readonly string[]): Promise<void>;
  /** Does it and fails when the store is another afterwards. */
  keeps(what: string, act: () => Promise<void>): Promise<void>;
  /** Lets the host work for that long; fails when its engine had a fault. */
  works(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** What is under the patience of the watchdog, whoever is waited for. */
async function within<T>(what: string, dog: Watchdog, act: () => Promise<T>): Promise<T> {
  dog.trying(what);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: does not end within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([act(), late]);
  } finally {
    clearTimeout(timer);
    dog.resting();
  }
}

/** A host at work, empty but for what `seed` says. One at a time: it is found by this process's environment. */
export async function openArena(dog: Watchdog): Promise<Arena> {
  const folder = mkdtempSync(join(tmpdir(), "drover-fuzz-"));
  const home = join(folder, "home");
  mkdirSync(join(home, "runs"), { recursive: true, mode: 0o700 });
  Object.assign(process.env, { HOME: folder, DROVER_HOME: home, PATH: "/usr/bin:/bin", TZ: "UTC", NO_COLOR: "1" });
  for (const name of ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DROVER_STORE", "DROVER_RUN_ID"])
    delete process.env[name];

  for (const [name, text] of Object.entries(FILES)) writeFileSync(join(folder, name), text);
  const stage = createStage({ plans: { echo: { output: "{}" }, sh: { exit: 3 }, sleep: { durationMs: 3_600_000 } } });
  await stage.start();
  writeFileSync(join(home, "host-id"), stage.hostId);
  const places = placesOf(process.env);
  writeFileSync(places.hostFile, stage.hostId);
  const real = await makeWorld(build);
  const { settings } = await readSettings(process.env, places, null);
  const health = {
    state: "up",
    mode: "full",
    pid: process.pid,
    version: build.version,
    build: build.id,
    hostId: stage.hostId,
    hostName: "stage",
    startedAt: new Date(stage.host.now()).toISOString(),
  } as const;
  // Agents are found on every host, as `testAgents` has them.
  const findProgram: World["findProgram"] = async (name, cwd, path) =>
    name === "claude" || name === "codex" ? `/bin/${name}` : real.findProgram(name, cwd, path);
  const context: ActContext = {
    clock: { now: stage.host.now },
    hostZone: "Europe/Berlin",
    build,
    places,
    settings,
    store: stage.store as Store,
    hostId: stage.hostId,
    caller: { by: "person", parentRunId: null },
    daemon: async () => ({ mode: "full" }),
    output: outputFiles(places),
    findProgram,
    isFolder: real.isFolder,
    isRoot: false,
    agents: testAgents,
    trees: testTrees,
    leftovers: real.leftovers,
    control: { health: () => health, stop: () => void (stopped = true) },
  };
  let stopped = false;
  const accepted = new Map<string, Input[]>();
  const keep = (name: string, input: Json): void => {
    const inputs = accepted.get(name) ?? [];
    inputs.push(input as Input);
    if (inputs.length > KEPT_INPUTS) inputs.splice(1, 1);
    accepted.set(name, inputs);
  };
  const open = async () => ({ context, close: async () => undefined });
  const world: CommandWorld = {
    ...real,
    hostZone: context.hostZone,
    hasTerminal: false,
    clock: context.clock,
    findProgram,
    cwd: folder,
    settings: async () => settings,
    usualSettings: async () => settings,
    caller: async () => context.caller,
    openReading: open,
    openWriting: open,
    // As over the socket: what cannot be written as JSON does not arrive.
    async call(name, input) {
      if (stopped) throw new AppError("unreachable", "daemon_down", "it was told to go down");
      const entry = findEntry(name);
      if (entry === undefined || entry.where === "local")
        throw new AppError("not_found", "operation_not_found", "there is none");
      const { operation } = await entry.load();
      try {
        // What is too deep to be written may still be read.
        const sent = isDeep(input) ? (input as Json) : (JSON.parse(JSON.stringify(input)) as Json);
        const answer = JSON.parse(JSON.stringify(await runIn(operation, context, sent))) as unknown;
        if (entry.hidden === true) keep(name, sent);
        return answer;
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        throw fromDocument(JSON.parse(JSON.stringify(toDocument(error))) as ErrorDocument);
      }
    },
    askDaemon: async () => (stopped ? { absent: "down" } : { health }),
    lockHolder: async () => (stopped ? null : { pid: process.pid }),
    startDaemon: async () => ({ health, started: false }),
    beDaemon: async () => ({ why: "down", service: null }),
    service: async () => null,
    inspect: async () => ({ findings: [], counts: [], mendings: [] }),
    selfTest: async () => ({ ok: true, runId: null, message: "" }),
    wait: (ms) => stage.run(ms),
    agents: testAgents,
    trees: testTrees,
    isRoot: false,
    confirm: async () => true,
    attach: async () => 0,
    ask: async () =>
      arena.says === null ? null : { exit: 0, stdout: arena.says, stderr: "", cut: false, timedOut: false },
    recordFault(error) {
      faults.push(error);
      return { id: "fault", file: null };
    },
  };
  const faults: unknown[] = [];
  const examples = new Map<string, readonly Input[]>();
  for (const entry of operations) examples.set(entry.name, examplesOf((await entry.load()).operation));

  const texts: string[] = [];
  const note = (value: unknown, depth = 0): void => {
    if (typeof value === "string" && value.length > 0 && value.length < 400) {
      if (!texts.includes(value)) texts.push(value);
    } else if (typeof value === "object" && value !== null && depth < 6)
      for (const one of Object.values(value).slice(0, 30)) note(one, depth + 1);
    while (texts.length > KEPT_TEXTS) texts.shift();
  };
  const pool: Pool = {
    texts,
    accepted: (name) => accepted.get(name) ?? [],
    namesOf(kind) {
      switch (kind) {
        case "loop":
          return stage
            .rows<{ name: string; id: string }>(sql`select name, id from loops order by id limit 8`)
            .flatMap(({ name, id }) => [name, id]);
        case "run":
          return stage.rows<{ id: string }>(sql`select id from runs order by id desc limit 8`).map(({ id }) => id);
        case "thing":
          return [...pool.namesOf("loop"), ...pool.namesOf("run"), ...pool.namesOf("account")];
        case "account":
          return [
            "claude:default",
            ...stage
              .rows<{ ref: string }>(sql`select provider || ':' || name as ref from accounts limit 8`)
              .map(({ ref }) => ref),
          ];
        case "attempt":
        case "step":
          return [
            "main",
            ...stage.rows<{ id: string }>(sql`select id from attempts order by id desc limit 8`).map(({ id }) => id),
          ];
        case "file":
        case "folder":
          return [
            folder,
            join(folder, "drover.yaml"),
            join(folder, "bundle"),
            join(folder, "crontab"),
            join(folder, "x.timer"),
          ];
        default:
          return [];
      }
    },
  };
  let stored = dumpOf(stage);
  const changes = () => stage.rows<{ n: number }>(sql`select total_changes() as n`)[0]?.n ?? 0;
  let changed = changes();
  let settledAt = stage.time.now;

  /** Fails when what was refused, or only read, left anything in the store or in the home. */
  function checkUnchanged(what: string, files: string | null): void {
    // While it waited, the host was at work.
    if (changes() !== changed && stage.time.now === settledAt) {
      const now = dumpOf(stage);
      if (now !== stored) throw new Error(`${what}: refused, and the store is another\n${difference(stored, now)}`);
      changed = changes();
    }
    const now = files === null ? null : filesBelow(folder);
    if (files !== null && now !== null && now !== files)
      throw new Error(`${what}: refused, and the home is another\n${difference(files, now)}`);
  }
  /** Takes the store as it is for what it has to be, once the engine has done what it was poked for. */
  const settle = async (): Promise<void> => {
    for (let before = -1; before !== changes(); ) {
      before = changes();
      await stage.time.settle();
    }
    settledAt = stage.time.now;
    if (changes() === changed) return;
    stored = dumpOf(stage);
    changed = changes();
  };
  function checkEngine(what: string): void {
    const fault = stage.log.find(({ level }) => level === "error");
    if (fault !== undefined) throw new Error(`${what}: the engine had a fault: ${JSON.stringify(fault)}`);
  }

  async function act(operation: AnyOperation, input: Json): Promise<unknown> {
    stopped = false;
    const { follow, where } = operation;
    const asked =
      typeof input === "object" && input !== null ? (input as Input)[operation.cli.follows ?? "follow"] : null;
    if (follow === null || asked !== true || (where !== "read" && where !== "local"))
      return perform(world, operation, input, true);
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), WATCHED_MS);
    try {
      let items = 0;
      for await (const item of performFollow(world, operation, input, over.signal)) {
        note(item);
        if (++items === ITEMS) break;
      }
      return null;
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }

  const arena: Arena = {
    folder,
    stage,
    world,
    context,
    pool,
    examples,
    says: null,
    refusal: null,
    async tries(operation, input) {
      const what = `${operation.name} ${shown(input)}`;
      await settle();
      const files = filesBelow(folder);
      try {
        const answer = await within(what, dog, () => act(operation, input));
        if (operation.where === "read") checkUnchanged(what, null);
        await settle();
        if (answer === null) return null;
        const plain = JSON.parse(JSON.stringify(answer)) as unknown;
        const wrong = differenceFrom(operation.output, plain);
        if (wrong !== null) throw new Error(`${what}: ${wrong}`);
        keep(operation.name, input);
        note(plain);
        return plain;
      } catch (error) {
        if (error instanceof Error && error.message.startsWith(what)) throw error;
        checkError(error, what, operation);
        arena.refusal = error;
        checkUnchanged(what, files);
        return null;
      }
    },
    async triesWords(operation, given) {
      const words = [...operation.name.split("."), ...given];
      const what = `drover ${words.map((word) => JSON.stringify(word.slice(0, 300))).join(" ")}`;
      await settle();
      const files = filesBelow(folder);
      const before = faults.length;
      stopped = false;
      const { status, err } = await captured(() => within(what, dog, () => runCommandLine(words, world)));
      if (faults.length > before) throw new Error(`${what}: a fault of our own`, { cause: faults.at(-1) });
      if (!exitsOf(operation).includes(status))
        throw new Error(`${what}: ended with ${status}\n${err.slice(0, 2_000)}`);
      if (/^\s+at .*:\d+/m.test(err) || LIBRARY.test(err)) throw new Error(`${what}: a stack\n${err.slice(0, 2_000)}`);
      if (/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(err))
        throw new Error(`${what}: control characters\n${JSON.stringify(err.slice(0, 2_000))}`);
      if (Object.values(EXIT).includes(status) && operation.cli.exit === undefined) checkUnchanged(what, files);
      await settle();
    },
    async keeps(what, act) {
      await settle();
      await within(what, dog, act);
      checkUnchanged(what, null);
    },
    async works(ms) {
      await within(`${ms} ms of work`, dog, () => stage.run(ms));
      await settle();
      checkEngine(`${ms} ms of work`);
    },
    async close() {
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return arena;
}

const shown = (input: Json): string => {
  try {
    return JSON.stringify(input).slice(0, 2_000);
  } catch {
    return "what is too deep to be shown";
  }
};

/** The first lines in which two texts differ. */
function difference(before: string, now: string): string {
  const [old, fresh] = [new Set(before.split("\n")), new Set(now.split("\n"))];
  const lines = [
    ...[...old].filter((line) => !fresh.has(line)).map((line) => `- ${line}`),
    ...[...fresh].filter((line) => !old.has(line)).map((line) => `+ ${line}`),
  ];
  return lines
    .slice(0, 10)
    .map((line) => line.slice(0, 400))
    .join("\n");
}

/** Who listens to what of this process. */
type Ears = readonly {
  readonly emitter: NodeJS.EventEmitter;
  readonly name: string | symbol;
  readonly listener: (...given: never[]) => void;
}[];
const earsNow = (): Ears =>
  ([process, process.stdout, process.stderr] as NodeJS.EventEmitter[]).flatMap((emitter) =>
    emitter
      .eventNames()
      .flatMap((name) =>
        emitter.listeners(name).map((listener) => ({ emitter, name, listener: listener as () => void })),
      ),
  );

/**
 * Runs it with what it prints kept, and its ears at this process's signals and streams taken off again. What goes on for
 * as long as somebody watches is interrupted as by Ctrl-C.
 */
async function captured(act: () => Promise<number>): Promise<{ readonly status: number; readonly err: string }> {
  let err = "";
  const [out, fault, written] = [process.stdout.write, process.stderr.write, fs.writeSync];
  const before = new Set(earsNow().map(({ listener }) => listener));
  const fresh = () => earsNow().filter(({ listener }) => !before.has(listener));
  const textOf = (text: string | Uint8Array): string =>
    typeof text === "string" ? text : Buffer.from(text).toString();
  process.stdout.write = () => true;
  process.stderr.write = (text: string | Uint8Array) => {
    err += textOf(text);
    return true;
  };
  // A command that answers in one piece goes by the descriptors, past the streams.
  fs.writeSync = ((descriptor: number, text: string | Uint8Array, ...rest: never[]): number => {
    if (descriptor !== 1 && descriptor !== 2) return written(descriptor, text as Uint8Array, ...rest);
    if (descriptor === 2) err += textOf(text);
    return Buffer.byteLength(text);
  }) as typeof fs.writeSync;
  syncBuiltinESMExports();
  const timer = setTimeout(() => {
    for (const { name, listener } of fresh()) if (name === "SIGINT") (listener as () => void)();
  }, WATCHED_MS);
  try {
    return { status: await act(), err };
  } finally {
    clearTimeout(timer);
    process.stdout.write = out;
    process.stderr.write = fault;
    fs.writeSync = written;
    syncBuiltinESMExports();
    for (const { emitter, name, listener } of fresh()) emitter.off(name, listener as () => void);
  }
}
