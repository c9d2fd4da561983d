/**
 * Loads the program's files in the form into which V8 compiled them for earlier commands, which is kept in the state folder: to
 * compile them anew takes a third of the time of a list. Node 22 can do it by itself; Node 20 cannot, and one way is enough.
 */
import { closeSync, existsSync, fstatSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Script } from "node:vm";
import { placesOf } from "../ops/places.ts";

declare const __DROVER_BUILD__: string | undefined;

/** For how many different commands what they compile is added: each is one writing of the file. */
const COMMANDS = 32;
/** Of a file that we would not have written no more is read than its owner and size. */
const MOST_BYTES = 64 * 1024 * 1024;
/** V8 trusts the address and the bytes that it is given, so the parts begin where it would put them. */
const ALIGNMENT = 8;

interface Kept {
  readonly commands: readonly string[];
  readonly parts: ReadonlyMap<string, Buffer>;
}

interface Header {
  /** Of which build, by which Node: nothing of another one is used. */
  readonly key: string;
  readonly commands: readonly string[];
  /** Name and bytes of each file's form, in their order. */
  readonly parts: readonly (readonly [string, number])[];
}

const NONE: Kept = { commands: [], parts: new Map() };
const HEAD = "(function (exports, require, module, __filename, __dirname) { ";

const key = `${typeof __DROVER_BUILD__ === "string" ? __DROVER_BUILD__ : "source"} ${process.version} ${process.arch}`;
const nodes = createRequire(import.meta.url);
const here = dirname(fileURLToPath(import.meta.url));
const scripts = new Map<string, Script>();
let kept = NONE;

const ours = Object.assign((id: string): unknown => (id.startsWith("./") ? load(id.slice(2)) : nodes(id)), nodes);

/** Loads a file that lies beside this one, once. */
function load(name: string): unknown {
  const filename = join(here, name);
  // Node's own list, which tells whoever asks what is loaded.
  const known = nodes.cache[filename];
  if (known !== undefined) return known.exports as unknown;
  const module = { id: filename, filename, exports: {} };
  nodes.cache[filename] = module as NodeJS.Module;
  const cachedData = kept.parts.get(name);
  const script = new Script(`${HEAD}${readFileSync(filename, "utf8")}\n})`, {
    filename,
    columnOffset: -HEAD.length,
    ...(cachedData === undefined ? {} : { cachedData }),
  });
  scripts.set(name, script);
  try {
    (script.runInThisContext() as (...values: unknown[]) => void)(module.exports, ours, module, filename, here);
  } catch (error) {
    delete nodes.cache[filename];
    throw error;
  }
  return module.exports;
}

/** What was kept by this build and Node; nothing where there is none, where it is damaged, or another user wrote it. */
function readKept(file: string): Kept {
  let descriptor: number;
  try {
    descriptor = openSync(file, "r");
  } catch {
    return NONE;
  }
  try {
    const { uid, size } = fstatSync(descriptor);
    // Whoever runs this as root must not run what somebody else could write.
    if (size > MOST_BYTES || uid !== process.getuid?.()) return NONE;
    const bytes = readFileSync(descriptor);
    const half = bytes.length / 2;
    if (!bytes.subarray(0, half).equals(bytes.subarray(half))) return NONE;
    let at = bytes.indexOf("\n") + 1;
    const header = JSON.parse(bytes.toString("utf8", 0, at)) as Header;
    if (header.key !== key) return NONE;
    const parts = header.parts.map(([name, length]) => [name, bytes.subarray(at, (at += length))] as const);
    return { commands: header.commands, parts: new Map(parts) };
  } catch {
    return NONE;
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Keeps what is compiled by now, twice: V8 runs what it is given, so a damaged or half-written file must be told by ourselves,
 * and to compare costs less than to load what makes a sum.
 */
function keep(file: string, commands: readonly string[]): void {
  const fresh = [...scripts].map(([name, script]) => [name, script.createCachedData()] as const);
  const others = [...kept.parts].filter(([name]) => !scripts.has(name));
  const parts = [...others, ...fresh].map(([name, bytes]) => {
    const padded = Buffer.alloc(Math.ceil(bytes.length / ALIGNMENT) * ALIGNMENT);
    bytes.copy(padded);
    return [name, padded] as const;
  });
  const header: Header = { key, commands, parts: parts.map(([name, { length }]) => [name, length]) };
  const text = JSON.stringify(header);
  const line = `${text.padEnd(Math.ceil((text.length + 1) / ALIGNMENT) * ALIGNMENT - 1)}\n`;
  const once = [Buffer.from(line), ...parts.map(([, bytes]) => bytes)];
  writeFileSync(file, Buffer.concat([...once, ...once]), { mode: 0o600 });
}

/** `loop ls` of `loop ls --json`; of `show NAME` only `show`, as far as a name can be told from a verb. */
function commandOf(words: readonly string[]): string {
  const [first = "", second = ""] = words;
  return /^[a-z]{1,12}$/.test(second) ? `${first} ${second}` : first;
}

/** Loads the entry. Nothing that goes wrong with what is kept is anybody's concern: then everything is compiled as ever. */
function start(): void {
  try {
    const { state, hostFile } = placesOf(process.env);
    const file = join(state, "compiled");
    kept = readKept(file);
    const command = commandOf(process.argv.slice(2));
    const { commands } = kept;
    if (!commands.includes(command) && commands.length < COMMANDS)
      process.once("exit", () => {
        try {
          // Where nothing of ours was put yet, a look leaves nothing.
          if (existsSync(hostFile)) keep(file, [...commands, command]);
        } catch {
          // A folder that cannot be written, a full disk: the next command compiles again.
        }
      });
  } catch {
    // Not even the places are known; the command itself says so.
  }
  load("main.js");
}

start();
