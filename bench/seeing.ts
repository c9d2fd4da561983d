/**
 * P8: whether what people look at costs the same on a store of years: whole commands on a store of 10,000 loops and 1,000,000
 * attempts, and on one that holds just what these commands show; and whether a claim does. Bar P8: 1.2 times for `status`,
 * `runs`, `loop ls` and claims.
 *
 * Options: `--loops N`, `--attempts N`, `--rounds N`, `--store postgres`, `--only TEXT`, `--keep DIR` to make the stores once
 * and use them again, `--tiny` to show that it works. The large store takes 3 GiB at full size, and some minutes to be made.
 */
import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Cluster, makeDatabase, startPostgres } from "../test/postgres.ts";
import { openClaims } from "./claims.ts";
import { type Database, postgresDatabase, type Row, sqliteDatabase } from "./database.ts";
import { makeHistory } from "./history.ts";
import { type Home, openHome, usageOf } from "./homes.ts";
import { copyPage, idsIn, namesIn } from "./page-store.ts";
import { compare, shownComparison } from "./rounds.ts";

const BAR = 1.2;
/** How long a daemon is watched at rest. */
const REST_MS = 20_000;

const { values } = parseArgs({
  options: {
    loops: { type: "string", default: "10000" },
    attempts: { type: "string", default: "1000000" },
    rounds: { type: "string", default: "15" },
    store: { type: "string", default: "sqlite" },
    only: { type: "string" },
    keep: { type: "string" },
    tiny: { type: "boolean", default: false },
  },
});
const { tiny } = values;
const size = tiny ? { loops: 40, attempts: 400 } : { loops: Number(values.loops), attempts: Number(values.attempts) };
const rounds = tiny ? 1 : Number(values.rounds);
/** Cases that stand for the others where only the bench itself is looked at. */
const TINY = new Set(["--version", "status", "runs", "loop ls"]);
const isPostgres = values.store === "postgres";
const program = resolve("dist/drover.js");
const say = (text: string): void => console.log(text);

interface Case {
  readonly args: readonly string[];
  /** One of those that the bar is about. */
  readonly bar?: true;
  /** A list that goes on: its page store has to hold one more than is shown. */
  readonly list?: true;
}

/** Loops that the cases name: one of the busiest, and one that seldom runs. */
const BUSY = "fetch-00002";
const busyAgent = "backup-00010";
const quietOf = (loops: number): string => `index-${String(Math.floor(loops / 2 / 10) * 10 + 3).padStart(5, "0")}`;

interface Places {
  readonly ended: string;
  readonly failed: string;
  readonly waiting: string;
  readonly queued: string;
  readonly running: string;
  readonly middle: string;
  readonly quiet: string;
  readonly attempt: string;
}

const cases = (at: Places): readonly Case[] => allCases(at).filter(({ args }) => !tiny || TINY.has(args.join(" ")));

const allCases = (at: Places): readonly Case[] => [
  { args: ["--version"] },
  { args: ["status"], bar: true },
  { args: ["runs"], bar: true, list: true },
  { args: ["loop", "ls"], bar: true, list: true },
  { args: ["runs", "--loop", BUSY], bar: true, list: true },
  { args: ["runs", "--loop", at.quiet], bar: true, list: true },
  ...["queued", "running", "waiting", "succeeded", "failed", "timed_out", "cancelled", "skipped"].map(
    (status): Case => ({ args: ["runs", "--status", status], bar: true, list: true }),
  ),
  { args: ["runs", "--loop", BUSY, "--status", "failed"], bar: true, list: true },
  { args: ["runs", "--loop", BUSY, "--status", "skipped"], bar: true, list: true },
  { args: ["runs", "--label", "nightly"], bar: true, list: true },
  { args: ["runs", "--label", "rare"], bar: true, list: true },
  { args: ["runs", "--label", "rare", "--status", "failed"], bar: true, list: true },
  { args: ["runs", "--label", "nightly", "--status", "skipped"], bar: true, list: true },
  { args: ["runs", "--label", "nightly", "--loop", at.quiet], bar: true, list: true },
  { args: ["runs", "--since", "1d"], bar: true, list: true },
  { args: ["runs", "--cursor", at.middle], bar: true, list: true },
  { args: ["loop", "ls", "--label", "nightly"], bar: true, list: true },
  { args: ["loop", "ls", "--label", "rare"], bar: true, list: true },
  { args: ["loop", "ls", "--archived"], bar: true, list: true },
  { args: ["show", at.ended] },
  { args: ["show", at.ended.slice(-6)] },
  { args: ["show", at.waiting] },
  { args: ["why", at.ended] },
  { args: ["why", at.failed.slice(-8)] },
  { args: ["why", at.waiting] },
  { args: ["why", at.queued] },
  { args: ["why", at.running] },
  { args: ["why", at.attempt] },
  { args: ["why", BUSY] },
  { args: ["loop", "show", BUSY] },
  { args: ["loop", "show", busyAgent] },
  { args: ["loop", "slots", BUSY], list: true },
  { args: ["loop", "slots", at.quiet], list: true },
  { args: ["events", "--limit", "50"] },
  { args: ["events", "--run", at.ended] },
  { args: ["worktree", "ls"], list: true },
  { args: ["account", "ls"] },
  { args: ["limit", "ls"] },
  { args: ["__complete", "loop", "show", ""] },
  { args: ["__complete", "loop", "show", "report-0"] },
  { args: ["__complete", "show", "run_"] },
];

async function placesOf(database: Database): Promise<Places> {
  const one = async (text: string): Promise<Row> => (await database.run(text))[0] ?? {};
  // A daemon that was on a kept store has let in what was queued: the newest run stands in for what is not there any more.
  const id = async (where: string): Promise<string> =>
    String(
      (await one(`select id from runs where ${where} order by queued_at desc, id desc limit 1`))["id"] ??
        (await one("select id from runs order by queued_at desc, id desc limit 1"))["id"],
    );
  const span = await one("select min(queued_at) as first, max(queued_at) as last from runs");
  const half = Math.floor((Number(span["first"]) + Number(span["last"])) / 2);
  const middle = await one(
    `select queued_at, id from runs where queued_at <= ${half} order by queued_at desc, id desc limit 1`,
  );
  const ended = await id("status = 'succeeded' and loop_id is not null");
  return {
    ended,
    failed: await id("status = 'failed' and loop_id is not null"),
    waiting: await id("status = 'waiting' and finished_at is null"),
    queued: await id("status = 'queued' and finished_at is null"),
    running: await id("status = 'running' and finished_at is null"),
    middle: Buffer.from(JSON.stringify([Number(middle["queued_at"]), middle["id"]])).toString("base64url"),
    quiet: quietOf(size.loops),
    attempt: String((await one(`select id from attempts where run_id = '${ended}' order by id limit 1`))["id"]),
  };
}

const seconds = (sinceMs: number): string => `${((performance.now() - sinceMs) / 1000).toFixed(0)} s`;

/** A home whose store the program has made, and nobody has open. */
function madeHome(folder: string, store: string | null): Home {
  const home = openHome(folder, program, store);
  home.drover(["up"]);
  home.drover(["down"]);
  return home;
}

/** A store that was kept may be of an earlier schema: a daemon brings it up to date. */
function settle(home: Home): void {
  home.drover(["up"]);
  home.drover(["down"]);
  rmSync(join(home.folder, "home/backups"), { recursive: true, force: true });
}

const storeFile = (home: Home): string => join(home.folder, "home/drover.db");

const addressOf = (url: string | null, schema: string): string | null =>
  url === null ? null : `${url}&schema=${schema}`;
const openFor = (url: string | null, home: Home, schema: string): Promise<Database> =>
  url === null ? Promise.resolve(sqliteDatabase(storeFile(home))) : postgresDatabase(url, schema);

async function makeLarge(folder: string, url: string | null): Promise<void> {
  const startedAt = performance.now();
  const big = madeHome(join(folder, "big"), addressOf(url, "big"));
  const filling = await openFor(url, big, "big");
  let told = performance.now();
  const runs = await makeHistory(filling, { ...size, now: Math.floor(Date.now() / 60_000) * 60_000 }, (what) => {
    say(`  ${what}${performance.now() - told > 2_000 ? ` (after ${seconds(told)})` : ""}`);
    told = performance.now();
  });
  await filling.close();
  say(`  ${runs} runs, made in ${seconds(startedAt)}`);
}

/** The store that holds what the commands of this version show of the large one. */
async function makePage(folder: string, url: string | null): Promise<void> {
  const big = openHome(join(folder, "big"), program, addressOf(url, "big"));
  const looking = await openFor(url, big, "big");
  const places = await placesOf(looking);
  await looking.close();
  const answers = cases(places)
    .filter(({ args }) => args[0] !== "--version" && args[0] !== "__complete")
    .map(({ args, list }) => big.drover([...args, ...(list === true ? ["--limit", "51"] : []), "--json"]).out);
  const offered = cases(places)
    .filter(({ args }) => args[0] === "__complete")
    .map(({ args }) => big.drover(args).out);
  const page = madeHome(join(folder, "page"), addressOf(url, "page"));
  copyFileSync(join(big.folder, "home/host"), join(page.folder, "home/host"));
  const copying = await openFor(url, page, "page");
  if (url === null) await copying.run(`attach '${storeFile(big)}' as big`);
  const shown = [...answers, ...offered];
  await copyPage(copying, idsIn([...shown, ...Object.values(places)]), namesIn(shown), [BUSY, busyAgent, places.quiet]);
  if (url === null) await copying.run("detach big");
  else await copying.run("vacuum analyze");
  await copying.close();
}

/** The answers are the same: what differs by design is the place of the store, and where a list goes on. */
function sameAnswer(big: Home, page: Home, args: readonly string[]): boolean {
  if (args[0] === "--version") return true;
  const isText = args[0] === "__complete";
  const [a, b] = [big, page].map((home) => home.drover([...args, ...(isText ? [] : ["--json"])]).out);
  const plain = (text: string | undefined): string =>
    (text ?? "")
      .replace(/"next": ?"[^"]*"/g, '"next":null')
      .replaceAll(big.folder, "")
      .replaceAll(page.folder, "")
      .replace(/"(?:pid|uptimeMs)":\s*\d+/g, "")
      .replaceAll(/schema=\w+/g, "");
  return plain(a) === plain(b);
}

async function measure(big: Home, page: Home, at: Places, with_: string): Promise<number> {
  let over = 0;
  say(
    `\n${with_}: ms on the large store, on the page's, median ratio of ${rounds} rounds (middle half of them); the same of CPU ms`,
  );
  for (const { args, bar } of cases(at)) {
    const name = args.map((word) => (word.length > 24 ? `${word.slice(0, 10)}…` : word || "''")).join(" ");
    if (values.only !== undefined && !name.includes(values.only)) continue;
    const same = sameAnswer(big, page, args);
    const compared = await compare(
      rounds,
      () => big.drover(args),
      () => page.drover(args),
    );
    // A neighbour that takes the processor shows in the one, never in the other.
    const isOver = bar === true && compared.ms.ratio > BAR && compared.cpuMs.ratio > BAR;
    if (isOver) over++;
    say(shownComparison(name, compared, `${isOver ? "  OVER" : ""}${same ? "" : "  (another answer)"}`));
  }
  return over;
}

/** What a run costs from its claim to its settlement, on both stores. */
async function measureClaims(addresses: readonly [big: string, page: string]): Promise<number> {
  const [big, page] = [await openClaims(addresses[0]), await openClaims(addresses[1])];
  try {
    const compared = await compare(rounds, big.cycle, page.cycle);
    const isOver = compared.ms.ratio > BAR && compared.cpuMs.ratio > BAR;
    say(shownComparison("20 runs claimed, started and settled", compared, isOver ? "  OVER" : ""));
    return isOver ? 1 : 0;
  } finally {
    await big.close();
    await page.close();
  }
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function rest(homes: readonly (readonly [string, Home])[]): Promise<void> {
  say(`\ndaemons at rest for ${REST_MS / 1000} s`);
  const pidOf = (home: Home): number =>
    (JSON.parse(home.drover(["status", "--json"]).out) as { daemon: { pid: number } }).daemon.pid;
  const pids = homes.map(([name, home]) => [name, pidOf(home)] as const);
  await pause(3_000);
  const before = pids.map(([, pid]) => usageOf(pid));
  await pause(REST_MS);
  for (const [index, [name, pid]] of pids.entries()) {
    const [from, to] = [before[index], usageOf(pid)];
    if (from == null || to == null) continue;
    say(
      `${name.padEnd(10)} ${(to.residentBytes / 2 ** 20).toFixed(0)} MiB, ${to.cpuMs - from.cpuMs} ms of CPU, ${to.written - from.written} bytes written, ${to.wakeUps - from.wakeUps} wake-ups of the main thread`,
    );
  }
}

async function main(): Promise<void> {
  const kept = values.keep === undefined ? null : resolve(values.keep);
  const folder = kept ?? mkdtempSync(join(tmpdir(), "drover-bench-"));
  const cluster: Cluster | null = isPostgres ? await startPostgres({ durable: true }) : null;
  try {
    const url = cluster === null ? null : await makeDatabase(cluster.url, "seeing");
    say(
      `${size.loops} loops, ${size.attempts} attempts; Node ${process.version}; ${isPostgres ? "PostgreSQL, fsync on" : "SQLite, WAL, synchronous=FULL"}; ${folder}`,
    );
    if (isPostgres || !existsSync(join(folder, "big/home/drover.db"))) await makeLarge(folder, url);
    else if (url === null) settle(openHome(join(folder, "big"), program, null));
    rmSync(join(folder, "page"), { recursive: true, force: true });
    await makePage(folder, url);
    const home = (name: string) => openHome(join(folder, name), program, url === null ? null : `${url}&schema=${name}`);
    const [big, page] = [home("big"), home("page")];
    if (url === null) {
      const mib = (of: Home): string => (statSync(storeFile(of)).size / 2 ** 20).toFixed(1);
      say(`the large store has ${mib(big)} MiB, the page's ${mib(page)} MiB`);
    }
    const large = url === null ? sqliteDatabase(storeFile(big)) : await postgresDatabase(url, "big");
    const at = await placesOf(large);
    await large.close();
    let over = await measure(big, page, at, "without a daemon");
    const addressIn = (of: Home, schema: string): string => addressOf(url, schema) ?? `sqlite:${storeFile(of)}`;
    over += await measureClaims([addressIn(big, "big"), addressIn(page, "page")]);
    big.drover(["up"]);
    page.drover(["up"]);
    try {
      over += await measure(big, page, at, "with a daemon");
      if (!tiny)
        await rest([
          ["large", big],
          ["page", page],
        ]);
    } finally {
      big.drover(["down", "--stop-runs"]);
      page.drover(["down", "--stop-runs"]);
    }
    say(
      `P8    what is looked at and claimed, at most ${BAR} times: ${tiny ? "not judged" : over === 0 ? "reached" : `NOT REACHED by ${over}`}`,
    );
    if (over > 0 && !tiny) process.exitCode = 1;
  } finally {
    await cluster?.stop();
    if (kept === null) rmSync(folder, { recursive: true, force: true });
  }
}

await main();
