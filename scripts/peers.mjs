// @ts-check
/**
 * What the benches compare drover with, in `.cache/bench-peers`: no part of what everybody installs. The exact versions are
 * those of the lock file in `bench/peers`.
 *
 *   node scripts/peers.mjs     installs what is missing; its last line says where it is, as JSON
 */
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { npm, root, staleness } from "./install.mjs";

const SOURCE = join(root, "bench/peers");
const FOLDER = ".cache/bench-peers";

/** @param {string} file */
const readJson = (file) => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined);

/**
 * Installs them if any is missing or of another version, and puts the scripts that drive them beside them.
 * @returns {string} their folder
 */
function installPeers() {
  const folder = join(root, FOLDER);
  mkdirSync(folder, { recursive: true });
  for (const file of readdirSync(SOURCE)) copyFileSync(join(SOURCE, file), join(folder, file));
  const stale = staleness(
    readJson(join(folder, "package-lock.json")),
    readJson(join(folder, "node_modules/.package-lock.json")),
  );
  // Their native parts are optional, and nothing of them is built.
  if (stale.length > 0) npm(["ci", "--prefix", FOLDER, "--ignore-scripts"], false);
  return folder;
}

/** Where `redis-server` is; installed as Debian's package where that can be done. Undefined when there is none. */
function installRedis() {
  const find = () =>
    spawnSync("sh", ["-c", "command -v redis-server"], { encoding: "utf8" }).stdout.trim() || undefined;
  if (find() === undefined && process.getuid?.() === 0 && existsSync("/usr/bin/apt-get"))
    spawnSync("apt-get", ["install", "-q", "-y", "--no-install-recommends", "redis-server"], {
      // The package's own server is not wanted.
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
      stdio: ["ignore", "ignore", "inherit"],
    });
  return find();
}

console.log(JSON.stringify({ folder: installPeers(), redis: installRedis() ?? null }));
