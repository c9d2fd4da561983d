// @ts-check
/**
 * Makes the fixtures of the schema that a build of drover knows: a store with rows of every kind, made by that build itself
 * through its command line, as SQL text. The program may be years old: what it does not know yet is left out.
 *
 *     DROVER_TEST_POSTGRES=postgres://... node scripts/store-fixtures.mjs dist/drover.js
 *
 * Writes `NNNN.sqlite.sql.gz` and, with a server, `NNNN.postgres.sql.gz` into `test/fixtures/stores/`. Names of this machine are taken out.
 */
import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import Database from "better-sqlite3";
import pg from "pg";

const root = resolve(fileURLToPath(import.meta.url), "../..");
const place = join(root, "test/fixtures/stores");
const program = resolve(process.argv[2] ?? "dist/drover.js");
const server = process.env["DROVER_TEST_POSTGRES"];

/** What every version can do, and what some cannot. */
function fill(/** @type {string} */ folder, /** @type {string | null} */ store) {
  const bin = join(folder, "bin");
  for (const name of [bin, join(folder, "home"), join(folder, "shop")])
    mkdirSync(name, { recursive: true, mode: 0o700 });
  copyFileSync(join(root, "test/agents/stand-in.mjs"), join(bin, "stand-in.mjs"));
  for (const name of ["claude", "codex"]) symlinkSync("stand-in.mjs", join(bin, name));
  writeFileSync(join(folder, "home/config.yaml"), "limits:\n  agentLookMs: 100ms\n");
  const env = {
    PATH: `${bin}${delimiter}${process.env["PATH"]}`,
    HOME: folder,
    TZ: "UTC",
    LANG: "C.UTF-8",
    DROVER_HOME: join(folder, "home"),
    ...(store === null ? {} : { DROVER_STORE: store }),
  };
  const shop = join(folder, "shop");
  const may = (/** @type {string[]} */ ...args) =>
    spawnSync(process.execPath, [program, ...args], { cwd: shop, env, encoding: "utf8", timeout: 60_000, input: "" });
  const must = (/** @type {string[]} */ ...args) => {
    const { status, stdout, stderr } = may(...args);
    if (status !== 0) throw new Error(`drover ${args.join(" ")} ended with ${status}: ${stdout}${stderr}`);
    return stdout;
  };
  const soon = (/** @type {() => boolean} */ holds) => {
    for (const end = Date.now() + 30_000; !holds(); ) if (Date.now() > end) throw new Error(`waited in vain: ${holds}`);
  };
  const slotsOf = (/** @type {string} */ loop) => JSON.parse(must("loop", "slots", loop, "--json")).items;
  const idOf = (/** @type {string} */ out) => JSON.parse(out).id;
  for (const words of [
    ["init", "-q", "-b", "main"],
    ["-c", "user.name=t", "-c", "user.email=t@drover.invalid", "commit", "-q", "--allow-empty", "-m", "first"],
  ])
    execFileSync("git", words, { cwd: shop, env });

  must("up");
  must("loop", "add", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Rome", "--label", "night", "--", "true");
  must("loop", "add", "often", "--every", "1s", "--overlap", "queue", "--", "sh", "-c", "echo out; sleep 0.2");
  must("loop", "add", "breaks", "--every", "1s", "--breaker", "2", "--attempts", "1", "--", "false");
  must("loop", "add", "once", "--at", "+1s", "--", "true");
  must("loop", "add", "dynamic", "--dynamic", "--", "true");
  must("loop", "add", "old", "--every", "1h", "--", "true");
  must("loop", "archive", "old");
  must("loop", "rename", "dynamic", "as it says");
  may("limit", "set", "provider:claude", "3");
  must(
    "run",
    "--label",
    "by-hand",
    "--expect",
    "output",
    "--",
    "sh",
    "-c",
    `printf '{"found": ["\u00e9", 2]}' > "$DROVER_OUTPUT"`,
  );
  const failed = may(
    "run",
    "--json",
    "--attempts",
    "2",
    "--backoff",
    "100ms",
    "--",
    "sh",
    "-c",
    "echo broken >&2; exit 3",
  ).stdout;
  may("retry", idOf(failed));
  may("run", "--timeout", "1s", "--grace", "1s", "--", "sleep", "60");
  const cancelled = idOf(must("run", "--json", "--detach", "--", "sleep", "600"));
  may("cancel", cancelled);
  soon(() => slotsOf("often").length > 2 && slotsOf("breaks").length > 1);
  must("loop", "edit", "often", "--every", "1m");
  must("loop", "pause", "often");
  // Agents, accounts, worktrees, holds, declared things: where there are any.
  may("account", "add", "claude", "work", "--env", "WORD=value");
  const agent = (/** @type {string} */ mode, /** @type {string[]} */ ...more) =>
    may("run", "--json", "--cwd", shop, ...more, "--prompt", `Do it.\nMODE=${mode}`);
  agent("write made.txt", "--agent", "claude", "--account", "work", "--worktree", "required");
  agent("ok", "--agent", "codex");
  agent(`usage-limit ${Math.floor(Date.now() / 1000) + 7_200}`, "--agent", "claude", "--detach");
  may("agent", "hold", "codex", "--for", "1h", "--reason", "an outage");
  writeFileSync(join(shop, "drover.yaml"), 'version: 1\nloops:\n  declared:\n    every: 1h\n    command: ["true"]\n');
  may("apply", "--yes");
  // And then its host goes, in the middle of its work.
  const live = idOf(must("run", "--json", "--detach", "--", "sleep", "600"));
  soon(() => JSON.parse(must("show", live, "--json")).status === "running");
  const { pid } = JSON.parse(must("status", "--json")).daemon;
  process.kill(pid, "SIGKILL");
  soon(() => JSON.parse(must("status", "--json")).daemon.state === "down");
}

/** Ends what a folder's processes left. */
function sweep(/** @type {string} */ folder) {
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one) && Number(one) !== process.pid)) {
    try {
      if (readFileSync(`/proc/${name}/environ`, "latin1").includes(folder)) process.kill(Number(name), "SIGKILL");
    } catch {
      // it has ended, or is somebody else's
    }
  }
}

const literal = (/** @type {unknown} */ value) =>
  value === null ? "null" : typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);

/** All of a SQLite store as statements that make it anew. */
function sqliteText(/** @type {string} */ file) {
  const db = new Database(file, { readonly: true });
  db.defaultSafeIntegers();
  const all = (/** @type {string} */ query) => /** @type {Record<string, unknown>[]} */ (db.prepare(query).all());
  const made = all(
    "select type, name, sql from sqlite_schema where sql is not null and name not like 'sqlite_%' order by rowid",
  );
  const madeAs = (/** @type {boolean} */ table) =>
    made.filter(({ type }) => (type === "table") === table).map(({ sql }) => `${String(sql)};`);
  const rows = made
    .filter(({ type }) => type === "table")
    .flatMap(({ name }) =>
      all(`select * from ${String(name)}`).map(
        (row) => `insert into ${String(name)} values (${Object.values(row).map(literal).join(",")});`,
      ),
    );
  const pragmas = ["user_version", "application_id"].map(
    (name) => `pragma ${name} = ${String(db.pragma(name, { simple: true }))};`,
  );
  db.close();
  return [...madeAs(true), ...rows, ...madeAs(false), ...pragmas].join("\n");
}

/** The same of a PostgreSQL database, without what only `psql` understands. */
const postgresText = (/** @type {string} */ url) =>
  execFileSync("pg_dump", ["--inserts", "--no-owner", "--no-privileges", "--no-comments", url], {
    encoding: "utf8",
    maxBuffer: 1e9,
  })
    .split("\n")
    .filter(
      (line) =>
        line !== "" &&
        !/^(?:--|\\|SET transaction_timeout|CREATE SCHEMA public|SELECT pg_catalog.set_config\('search_path')/.test(
          line,
        ),
    )
    .join("\n")
    .replaceAll("public.", "");

/** Without this machine's names, which are as long as they happen to be. */
function anonymous(/** @type {string} */ text, /** @type {string} */ folder) {
  const secret = [
    [folder, "/home/someone"],
    [hostname(), "somewhere"],
    [readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim(), "00000000-0000-4000-8000-000000000001"],
    ...["/etc/machine-id", "/var/lib/dbus/machine-id"].flatMap((file) => {
      try {
        return [[readFileSync(file, "utf8").trim(), "0".repeat(32)]];
      } catch {
        return [];
      }
    }),
  ];
  return secret.reduce((said, [from = "", to = ""]) => (from === "" ? said : said.replaceAll(from, to)), text);
}

const write = (/** @type {number} */ schema, /** @type {string} */ dialect, /** @type {string} */ text) =>
  writeFileSync(join(place, `${String(schema).padStart(4, "0")}.${dialect}.sql.gz`), gzipSync(text, { level: 9 }));

const { schema } = await (async () => {
  const folder = mkdtempSync(join(tmpdir(), "drover-store-"));
  try {
    fill(folder, null);
    const file = join(folder, "home/drover.db");
    const text = anonymous(sqliteText(file), folder);
    const number = Number(/^pragma user_version = (\d+);$/m.exec(text)?.[1]);
    write(number, "sqlite", text);
    return { schema: number };
  } finally {
    sweep(folder);
    rmSync(folder, { recursive: true, force: true });
  }
})();
if (server !== undefined) {
  const folder = mkdtempSync(join(tmpdir(), "drover-store-"));
  const name = `store_${process.pid}`;
  const client = new pg.Client({ connectionString: server });
  await client.connect();
  await client.query(`create database ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  try {
    fill(folder, url.href);
    write(schema, "postgres", anonymous(postgresText(url.href), folder));
  } finally {
    sweep(folder);
    await client.query(`drop database ${name} with (force)`);
    await client.end();
    rmSync(folder, { recursive: true, force: true });
  }
}
console.log(`fixtures of schema ${schema} are made`);
