/** The peers: each case a fresh process of the scripts in `bench/peers`, with a database or a server of its own. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { join } from "node:path";
import { makeDatabase } from "../test/postgres.ts";
import type { Sample } from "./rounds.ts";
import { lastLine } from "./process.ts";

export type PeerCase = "graphile-latency" | "bullmq-latency" | "graphile-rate" | "dbos-rate";

export interface Peers {
  readonly versions: Readonly<Record<string, string>>;
  /** Whether there is a Redis: where it cannot be installed, what needs it is left out, and said. */
  readonly redis: boolean;
  /** Runs one case in a fresh process, with an empty database or server. */
  run(name: PeerCase, input: Readonly<Record<string, number>>): Promise<Sample>;
}

/** In their place where only the bench itself is looked at: each answers 1, whatever is asked, and nothing is installed. */
const absent: Peers = {
  redis: true,
  versions: {},
  run: async () => ({ p50: 1, p99: 1, freedP50: 1, freedP99: 1, perSecond: 1 }),
};

/** Installs the peers where they are missing. @param postgres the address of a cluster, over its socket @param tiny none is wanted */
export async function openPeers(folder: string, postgres: string, tiny: boolean): Promise<Peers> {
  if (tiny) return absent;
  const told = execFileSync(process.execPath, ["scripts/peers.mjs"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { folder: place, redis } = JSON.parse(told.trimEnd().split("\n").at(-1) ?? "") as {
    folder: string;
    redis: string | null;
  };
  if (redis === null) console.log("no redis-server here: what is compared with BullMQ is left out");
  const versionOf = (name: string): string =>
    (JSON.parse(readFileSync(join(place, "node_modules", name, "package.json"), "utf8")) as { version: string })
      .version;
  let servers = 0;
  return {
    redis: redis !== null,
    versions: {
      "graphile-worker": versionOf("graphile-worker"),
      DBOS: versionOf("@dbos-inc/dbos-sdk"),
      ...(redis === null ? {} : { BullMQ: versionOf("bullmq") }),
    },
    async run(name, input) {
      const script = join(place, "peer.mjs");
      if (!name.startsWith("bullmq"))
        return lastLine([script, name, JSON.stringify({ ...input, url: await makeDatabase(postgres) })]);
      const own = join(folder, `redis-${servers++}`);
      mkdirSync(own);
      const socket = join(own, "s");
      const server = startRedis(redis ?? "", own, socket);
      try {
        await listening(socket);
        return await lastLine([script, name, JSON.stringify({ ...input, socket })]);
      } finally {
        const ended = new Promise((done) => server.once("exit", done));
        server.kill("SIGKILL");
        await ended;
        rmSync(own, { recursive: true, force: true });
      }
    },
  };
}

/** On a socket, with every write flushed before it is answered. */
const startRedis = (file: string, folder: string, socket: string): ChildProcess =>
  spawn(
    file,
    [
      "--port",
      "0",
      "--unixsocket",
      socket,
      "--dir",
      folder,
      "--appendonly",
      "yes",
      "--appendfsync",
      "always",
      "--save",
      "",
    ],
    { stdio: "ignore" },
  );

async function listening(socket: string): Promise<void> {
  const endsAt = performance.now() + 10_000;
  for (;;) {
    const there = await new Promise<boolean>((resolve) => {
      const connection = createConnection(socket, () => {
        connection.end();
        resolve(true);
      }).on("error", () => resolve(false));
    });
    if (there) return;
    if (performance.now() > endsAt) throw new Error("redis-server does not answer");
    await new Promise((done) => setTimeout(done, 20));
  }
}
