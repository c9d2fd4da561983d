/** The rules of the house about its own text: what may import what, and what is not written where. Pure: text in, faults out. */
import { dirname, join, normalize } from "node:path/posix";
import { type Import, importsOf, readSource, type Source } from "./source.ts";

/** A place where a rule is broken. */
export interface Fault {
  readonly rule: string;
  readonly path: string;
  readonly line: number;
  readonly what: string;
}

/** What a layer may import: other layers, and packages. Node's own modules are free where `node` says so. */
interface Layer {
  readonly layers: readonly string[];
  readonly packages: readonly string[];
  readonly node: boolean;
}

const surface: Layer = { layers: ["core", "ops"], packages: ["commander", "picocolors", "yaml", "zod"], node: true };

const layers: Readonly<Record<string, Layer>> = {
  core: { layers: [], packages: ["@marcbachmann/cel-js", "zod"], node: false },
  store: { layers: ["core"], packages: ["better-sqlite3", "pg", "uuidv7", "zod"], node: true },
  execution: { layers: ["core"], packages: ["zod"], node: true },
  triggers: { layers: ["core"], packages: ["yaml", "zod"], node: true },
  engine: { layers: ["core"], packages: ["zod"], node: false },
  define: { layers: ["core"], packages: ["zod"], node: false },
  ops: { layers: ["core", "triggers", "engine"], packages: ["yaml", "zod"], node: true },
  cli: surface,
  http: surface,
  mcp: surface,
  sdk: surface,
};

/**
 * The layer table of architecture.md, section 2. A folder of `src/` that is not in it is a fault. What `main.ts` puts together
 * sees everyone, and nobody sees it.
 */
export const LAYERS: Readonly<Record<string, Layer>> = {
  ...layers,
  main: { layers: Object.keys(layers), packages: [], node: true },
};

/** Modules that only one layer may load, whatever way it loads them. `main.ts` and `main/` are no exception. */
const OWNED: Readonly<Record<string, string>> = {
  "node:child_process": "execution",
  child_process: "execution",
  "node:cluster": "execution",
  cluster: "execution",
  "node:sqlite": "store",
  "better-sqlite3": "store",
  pg: "store",
};

/** Words that say that nobody found the noun; none may be a part of a file's or folder's name. */
const EMPTY_NAMES = /^(?:utils?|helpers?|lib|shared|common|misc|managers?|handlers?|impl|kit)$/;
const EMPTY_EXPORT =
  /\bexport\s+(?:default\s+)?(?:abstract\s+)?(?:async\s+)?(?:class|function\*?|const|let|interface|type)\s+(\w*(?:Manager|Handler|Helper|Util|Utils|Impl|Service))\b/g;

/** What core and engine get as ports: read in the middle, it cannot be made up in a test. */
const INJECTED: readonly (readonly [string, RegExp])[] = [
  ["Date.now()", /\bDate\s*\.\s*now\b/g],
  ["new Date() without an argument", /\bnew\s+Date\s*(?:\(\s*\)|(?![\w\s(]))/g],
  ["Date() as a function", /(?<!\bnew\s)(?<![\w$.])Date\s*\(/g],
  ["Math.random", /\bMath\s*\.\s*random\b/g],
  ["performance", /(?<![\w$.])performance\s*\./g],
  ["crypto", /(?<![\w$.])crypto\s*\./g],
  ["a timer", /(?<![\w$.])(?:setTimeout|setInterval|setImmediate)\b(?!\s*\??:)/g],
  ["process", /(?<![\w$.])process\s*(?:\.|\[)/g],
  ["globalThis", /\bglobalThis\b/g],
];
const INJECTED_IN = ["core", "engine", "define"];

const SQL_TEXT =
  /^\s*(?:select\b[^]*\bfrom\b|insert\s+(?:or\s+\w+\s+)?into\b|update\s+\w+\s+set\b|delete\s+from\b|with\s+(?:recursive\s+)?\w+\s+as\s*(?:materialized\s*)?\(|(?:create|alter|drop)\s+(?:unique\s+)?(?:table|index|view|trigger|schema|database)\b|begin\s+(?:immediate|exclusive)\b|pragma\s+\w+|for\s+update\b)/i;

/** Tests and suites: they prove the layers and may reach across them, but nothing that ships may import them. */
export const isProof = (path: string): boolean =>
  /\.(?:test|contract)\.ts$/.test(path) || /(?:^|\/)contract\.ts$/.test(path) || path.startsWith("test/");

const layerOf = (path: string): string | undefined => /^src\/([^/]+)\//.exec(path)?.[1];
const packageOf = (specifier: string): string => specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
const isRelative = (specifier: string): boolean => specifier.startsWith("./") || specifier.startsWith("../");
const resolveFrom = (path: string, specifier: string): string => normalize(join(dirname(path), specifier));

interface File {
  readonly source: Source;
  readonly imports: readonly Import[];
  readonly layer: string | undefined;
  readonly proof: boolean;
}

type Report = (file: File, line: number, what: string) => void;
type Rule = (file: File, report: Report) => void;

const isShipped = (file: File): boolean => file.source.path.startsWith("src/") && !file.proof;

function eachMatch(file: File, pattern: RegExp, report: (line: number, match: RegExpExecArray) => void): void {
  for (const match of file.source.code.matchAll(pattern)) report(file.source.lineAt(match.index), match);
}

/**
 * The rules that look at one file at a time. To add one, add a line: its name, and what it reports.
 * A rule for statuses written out anywhere but in `core/run.ts` and `store/` belongs here (the `todo` of the tidy test).
 */
const RULES: Readonly<Record<string, Rule>> = {
  layers(file, report) {
    if (!isShipped(file) || file.source.path === "src/main.ts") return;
    const own = file.layer;
    if (own === undefined) {
      if (!file.source.path.endsWith(".d.ts")) report(file, 1, "only main.ts stands in no layer");
      return;
    }
    const layer = LAYERS[own];
    if (layer === undefined) return report(file, 1, `${own} is no layer`);
    for (const { specifier, line } of file.imports) {
      if (isRelative(specifier)) {
        const target = resolveFrom(file.source.path, specifier);
        if (!target.startsWith("src/")) {
          report(file, line, `${own} imports ${target}, outside of src`);
          continue;
        }
        const other = layerOf(target);
        if (other === own) continue;
        if (other === undefined) report(file, line, `${own} imports ${target}, which nobody sees`);
        else if (!layer.layers.includes(other)) report(file, line, `${own} imports ${other}`);
      } else if (specifier.startsWith("node:")) {
        if (!layer.node) report(file, line, `${own} imports ${specifier}`);
      } else if (!specifier.includes(":") && !layer.packages.includes(packageOf(specifier))) {
        report(file, line, `${own} imports the package ${packageOf(specifier)}`);
      }
    }
  },
  proofs(file, report) {
    if (!isShipped(file)) return;
    for (const { specifier, line } of file.imports) {
      if (!isRelative(specifier)) continue;
      const target = resolveFrom(file.source.path, specifier);
      if (isProof(target)) report(file, line, `imports the test ${target}`);
    }
  },
  owned(file, report) {
    if (!isShipped(file)) return;
    for (const { specifier, line } of file.imports) {
      const owner = OWNED[specifier] ?? OWNED[packageOf(specifier)];
      if (owner !== undefined && owner !== file.layer) report(file, line, `${specifier} belongs to ${owner}`);
    }
    // A module can be loaded by a name kept in a constant; of these three the name alone gives it away.
    for (const { text, line } of file.source.strings) {
      if (/^(?:node:sqlite|node:child_process|better-sqlite3)$/.test(text) && OWNED[text] !== file.layer) {
        if (!file.imports.some((one) => one.line === line && one.specifier === text)) {
          report(file, line, `${text} belongs to ${OWNED[text]}`);
        }
      }
      if (text === "git" && file.layer !== "execution") report(file, line, "git is run by execution only");
    }
  },
  injected(file, report) {
    if (!isShipped(file) || !INJECTED_IN.includes(file.layer ?? "")) return;
    for (const [name, pattern] of INJECTED) {
      eachMatch(file, pattern, (line) => report(file, line, `${name} in ${file.layer}`));
    }
  },
  sql(file, report) {
    if (!isShipped(file) || file.layer === "store") return;
    for (const { text, tag, line } of file.source.templates) {
      if (tag === "sql" || SQL_TEXT.test(text)) report(file, line, "SQL is written in store only");
    }
    for (const { text, line } of file.source.strings) {
      if (SQL_TEXT.test(text)) report(file, line, "SQL is written in store only");
    }
  },
  yields(file, report) {
    // operation.ts gives the words (`one`, `all`, ...), each of which yields a statement; everything else delegates to them.
    if (file.layer !== "store" || !isShipped(file) || file.source.path === "src/store/operation.ts") return;
    eachMatch(file, /(?<![\w$.])yield\b(?!\s*\*)/g, (line) =>
      report(file, line, "a bare `yield` loses the answer's type: use `yield*`"),
    );
  },
  names(file, report) {
    const parts = file.source.path.replace(/\.(?:d\.)?[a-z]+$/, "").split(/[/.-]/);
    const empty = parts.find((part) => EMPTY_NAMES.test(part));
    if (empty !== undefined) report(file, 1, `\`${empty}\` names nothing`);
    eachMatch(file, EMPTY_EXPORT, (line, match) => report(file, line, `\`${match[1]}\` names nothing`));
  },
  todos(file, report) {
    for (const { text, line } of file.source.comments) {
      text.split("\n").forEach((one, i) => {
        if (/\b(?:TODO|FIXME|XXX|HACK)\b/.test(one) && !/#\d+/.test(one)) report(file, line + i, "no issue number");
      });
    }
  },
};

/** The names of all rules, in the order in which they are tried. */
export const RULE_NAMES: readonly string[] = [...Object.keys(RULES), "reached"];

/**
 * Checks source files against the rules.
 * @param texts from a path relative to the checkout, with forward slashes, to the file's text
 * @param entries the files that the program is entered by
 */
export function tidy(texts: ReadonlyMap<string, string>, entries: readonly string[]): Fault[] {
  const faults: Fault[] = [];
  const files = new Map<string, File>();
  for (const [path, text] of texts) {
    const source = readSource(path, text);
    files.set(path, { source, imports: importsOf(source), layer: layerOf(path), proof: isProof(path) });
  }
  for (const file of files.values()) {
    for (const [rule, check] of Object.entries(RULES)) {
      check(file, (where, line, what) => faults.push({ rule, path: where.source.path, line, what }));
    }
  }
  for (const path of unreached(files, entries)) {
    faults.push({ rule: "reached", path, line: 1, what: "no entry, worker or test imports it" });
  }
  return faults.toSorted((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.line - b.line));
}

function unreached(files: ReadonlyMap<string, File>, entries: readonly string[]): string[] {
  const starts = [...files.keys()].filter((path) => entries.includes(path) || isProof(path));
  const seen = new Set(starts);
  const open = [...starts];
  for (let path = open.pop(); path !== undefined; path = open.pop()) {
    for (const { specifier } of files.get(path)?.imports ?? []) {
      const target = resolveFrom(path, specifier);
      if (!isRelative(specifier) || seen.has(target)) continue;
      seen.add(target);
      open.push(target);
    }
  }
  return [...files.keys()].filter((path) => path.startsWith("src/") && !path.endsWith(".d.ts") && !seen.has(path));
}

/**
 * Finds what must not be published in any file: where one machine keeps things, and which registry it reached.
 * @param machinePaths beginnings of paths that only our own machines have
 */
export function privateText(texts: ReadonlyMap<string, string>, machinePaths: readonly string[]): Fault[] {
  const faults: Fault[] = [];
  for (const [path, text] of texts) {
    text.split("\n").forEach((one, i) => {
      const found = machinePaths.find((prefix) => new RegExp(`(?<![\\w.~$})-])${prefix}`).test(one));
      if (found !== undefined) faults.push({ rule: "private", path, line: i + 1, what: `names a path below ${found}` });
      if (/"resolved":\s*"https?:|^\s*(?:@[\w-]+:)?registry\s*=|--registry[= ]/.test(one)) {
        faults.push({ rule: "private", path, line: i + 1, what: "names a registry" });
      }
    });
  }
  return faults;
}
