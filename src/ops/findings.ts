/** What `doctor` looks at, and what it makes of it. */
import { dirname } from "node:path";
import { AppError } from "../core/errors.ts";
import { describeDuration } from "../core/duration.ts";
import { describeSize } from "../core/size.ts";
import type { AccountView } from "../core/ports.ts";
import type { Provider } from "../core/target.ts";
import { allAccounts, untouchedDefault } from "./account-find.ts";
import { homeFault } from "./account-home.ts";
import { PROVIDERS } from "./agent-target.ts";
import { loginRemedy } from "./login-remedy.ts";
import type { Finding } from "./operation.ts";
import { withReading } from "./perform.ts";
import { readConfigFile, readSettings, storeFileOf, withoutPassword } from "./settings.ts";
import type { World } from "./world.ts";
import { treesOfHost } from "./worktree-answer.ts";
import { writeFaults } from "./writable.ts";

/** What needs more than the store. */
export interface Probes {
  /** Faults of the store's file. Errors: AppErrors of opening it. */
  storeFaults(): Promise<readonly string[]>;
  freeBytes(): Promise<number>;
  /** PATH as processes get it, and as this process has it. */
  readonly path: string;
  readonly ownPath: string;
  findTool(name: string): string | null;
  /** Tools that are used where they are there, with what goes without them. */
  readonly tools: readonly { readonly name: string; readonly without: string }[];
  /** Mode bits of a file; null when it is not there. */
  modeOf(path: string): number | null;
  /** Takes everybody else's rights away from a folder. */
  closeToOthers(path: string): void;
  /** Whether attempts can have a cgroup each. */
  cgroups(): boolean;
  /** Live processes that carry an attempt's mark. */
  marked(): readonly { readonly pid: number; readonly attemptId: string }[];
  end(pid: number): void;
  /** Worktrees of which no record is known, and those of ended runs; empty where nothing can be looked at. */
  strays(known: readonly string[]): Promise<readonly { readonly path: string; readonly holds: readonly string[] }[]>;
}

/** No clock of ours is right before this: the year in which this was written. */
const EARLIEST_NOW = Date.UTC(2025, 0, 1);
/** A host's last sign of life may lie this far ahead of our clock before that is worth a word. */
const CLOCK_AHEAD_MS = 60_000;
/** Looks at everything; a part that cannot be looked at is a finding of its own. */
export async function findings(world: World, probes: Probes, fix: boolean): Promise<readonly Finding[]> {
  const found: Finding[] = [];
  const say: Say = (check, level, message, hint = null) => {
    found.push({ check, level, message, hint });
  };
  const part = async (check: string, look: () => Promise<void> | void): Promise<void> => {
    try {
      await look();
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      say(check, "problem", error.message, error.hint ?? null); // that it cannot be looked at is what is found
    }
  };

  await part("config", async () => {
    const text = readConfigFile(world.places);
    const { problems } = await readSettings(world.env, world.places, text);
    for (const problem of problems)
      say(
        "config",
        problem.level === "error" ? "problem" : "warning",
        `${world.places.configFile}:${problem.line ?? 1}: ${problem.message}`,
      );
    if (problems.length === 0)
      say("config", "ok", text === null ? "no file: everything is as usual" : world.places.configFile);
  });
  const configBroken = found.some((finding) => finding.level === "problem");
  const settings = configBroken ? await world.usualSettings() : await world.settings();

  await part("folders", () => {
    const open = [world.places.state, world.places.runs, world.places.logs].filter(
      (path) => ((probes.modeOf(path) ?? 0) & 0o077) !== 0,
    );
    const { state, runs, logs, daemonLog } = world.places;
    const storeFile = configBroken ? null : storeFileOf(settings.store, world.places);
    const ofStore = storeFile === null ? [] : [storeFile, `${storeFile}-wal`, `${storeFile}-shm`];
    const faults = writeFaults(
      [state, runs, logs, ...(storeFile === null ? [] : [dirname(storeFile)])],
      [daemonLog, ...ofStore],
    );
    for (const { message, hint } of faults) say("folders", "problem", message, hint);
    if (open.length === 0 && faults.length === 0) say("folders", "ok", "for this user alone, and can be written");
    for (const path of open) {
      if (fix) probes.closeToOthers(path);
      say(
        "folders",
        fix ? "ok" : "warning",
        `others ${fix ? "could" : "can"} look into ${path}${fix ? ": mended" : ""}`,
        fix ? null : `chmod 700 ${path}; drover doctor --fix does it`,
      );
    }
  });

  await part("store", async () => {
    const file = storeFileOf(settings.store, world.places);
    if (configBroken) return say("store", "warning", "not looked at: the configuration has to be mended first");
    if (file !== null && probes.modeOf(file) === null) {
      // Opening says whether one was there before.
      await withReading(world, async () => {});
      return say("store", "ok", "nothing is stored yet");
    }
    const faults = await probes.storeFaults();
    for (const fault of faults)
      say(
        "store",
        "problem",
        `the store is damaged: ${fault}`,
        "Stop the daemon and put a copy in its place; keep the damaged file.",
      );
    if (faults.length > 0) return;
    await withReading(world, async ({ store }) => {
      await store.runs.counts({});
    });
    say("store", "ok", file ?? withoutPassword(settings.store));
  });

  const storeBroken = found.some((finding) => finding.check === "store" && finding.level === "problem");

  await part("daemon", async () => {
    const answer = await world.askDaemon();
    const holder = "absent" in answer ? await world.lockHolder() : null;
    if ("health" in answer) {
      const { pid, version, build } = answer.health;
      if (version !== world.build.version || build !== world.build.id)
        return say(
          "daemon",
          "warning",
          `the daemon (pid ${pid}) is another build: ${version} (${build}), this is ${world.build.version} (${world.build.id})`,
          "drover down && drover up; what runs goes on meanwhile",
        );
      return say("daemon", "ok", `up, pid ${pid}`);
    }
    if (holder !== null)
      return say(
        "daemon",
        "problem",
        `${holder.pid === null ? "somebody" : `pid ${holder.pid}`} holds the lock and does not answer`,
        `Its log says more: ${world.places.daemonLog}`,
      );
    say("daemon", "ok", "down; the lock is free");
  });

  await part("clock", async () => {
    const now = world.clock.now();
    if (now < EARLIEST_NOW)
      return say(
        "clock",
        "problem",
        `the clock says ${new Date(now).toISOString()}`,
        "Set the clock: slots would be recorded at wrong times.",
      );
    if (!configBroken && !storeBroken) {
      const ahead = await withReading(world, async ({ store }) =>
        Math.max(0, ...(await store.hosts.list({})).map((host) => host.lastSeenAt - now)),
      );
      if (ahead > CLOCK_AHEAD_MS)
        return say(
          "clock",
          "warning",
          `the store has seen times ${describeDuration(ahead)} ahead of this clock`,
          "The clock was set back, or another host's is fast.",
        );
    }
    say("clock", "ok", `${new Date(now).toISOString()}, zone ${world.hostZone}`);
  });

  await part("disk", async () => {
    const free = await probes.freeBytes();
    const least = settings.limits.minFreeBytes;
    if (free < least)
      return say(
        "disk",
        "problem",
        `${describeSize(free)} free: nothing starts below ${describeSize(least)}`,
        "Free some space, or lower limits.minFreeBytes.",
      );
    say("disk", "ok", `${describeSize(free)} free`);
  });

  await part("path", () => {
    const added = probes.path.split(":").filter((folder) => !probes.ownPath.split(":").includes(folder));
    if (probes.findTool("sh") === null)
      say("path", "problem", "there is no sh in the system's folders", "Processes are started through it.");
    for (const { name, without } of probes.tools)
      if (probes.findTool(name) === null && !onPath(name, probes))
        say("path", "warning", `${name} is not found: ${without}`);
    if (!found.some((finding) => finding.check === "path"))
      say(
        "path",
        "ok",
        added.length === 0 ? probes.path : `${probes.ownPath}, and for processes also ${added.join(":")}`,
      );
  });

  await part("processes", async () => {
    const marked = probes.marked();
    const proof = probes.cgroups()
      ? "each attempt gets a cgroup, so its end is proved"
      : "ended trees are found by session, descendants and mark; what leaves all three cannot be found";
    if (marked.length === 0) return say("processes", "ok", `nothing is left over; ${proof}`);
    if (configBroken || storeBroken)
      return say("processes", "warning", `which of them are at work is in the store, which cannot be read; ${proof}`);
    const ids = [...new Set(marked.map((one) => one.attemptId))];
    // The mark of an attempt that this store does not know is another installation's.
    const { ended, live } = await withReading(world, async ({ store, hostId }) => ({
      ended: new Set((await store.attempts.endedAmong({ attemptIds: ids })).map((one) => one.attemptId)),
      live: new Set((await store.attempts.ofHost({ hostId })).map(({ attempt }) => attempt.id)),
    }));
    const working = marked.filter((one) => live.has(one.attemptId)).length;
    const left = marked.filter((one) => ended.has(one.attemptId));
    for (const one of left) {
      if (fix) probes.end(one.pid);
      say(
        "processes",
        fix ? "ok" : "warning",
        `pid ${one.pid} is left over from ${one.attemptId}${fix ? ": ended" : ""}`,
        fix ? null : "drover doctor --fix ends it.",
      );
    }
    if (left.length === 0)
      say("processes", "ok", `${working === 0 ? "" : `${working} at work, `}nothing is left over; ${proof}`);
  });

  const views =
    configBroken || storeBroken ? [] : await withReading(world, ({ store }) => allAccounts(store, PROVIDERS));
  for (const provider of PROVIDERS) await part("agents", () => lookAtAgent(world, provider, views, say));

  await part("accounts", () => {
    for (const view of views) lookAtAccount(view, fix, say);
    if (!found.some((finding) => finding.check === "accounts"))
      say("accounts", "ok", views.length === 0 ? "not looked at" : "none is held, and their folders are theirs alone");
  });

  await part("worktrees", async () => {
    if (configBroken || storeBroken) return say("worktrees", "warning", "not looked at: the store cannot be read");
    const records = await withReading(world, treesOfHost);
    const strays = await probes.strays(records.map(({ path }) => path));
    for (const { path, holds } of strays)
      say(
        "worktrees",
        "warning",
        `${path} is of no run that is known${holds.length === 0 ? "" : `, and holds ${holds.join(", ")}`}`,
        holds.length === 0
          ? "drover worktree prune removes it."
          : "Look at it: drover removes nothing that holds work.",
      );
    if (strays.length === 0) {
      const kept = records.filter(({ state }) => state === "kept").length;
      say("worktrees", "ok", kept === 0 ? "none is left over" : `${kept} kept with work: drover worktree ls`);
    }
  });
  return found;
}

type Say = (check: string, level: Finding["level"], message: string, hint?: string | null) => void;

/** One provider: found, of a version that was tried, and logged in under each account that is there. */
async function lookAtAgent(world: World, provider: Provider, views: readonly AccountView[], say: Say): Promise<void> {
  const about = await world.agents.about(provider);
  const { program, tested, install } = about;
  if (program === null) return;
  const ofIt = views.map(({ account }) => account).filter((account) => account.provider === provider);
  const added = ofIt.filter((account) => account.name !== "default");
  const { file, version, tested: isTried, fault } = await world.agents.find(provider);
  // Nobody needs to have every agent; whoever added an account of one does.
  if (file === null)
    return added.length === 0
      ? say("agents", "ok", `${provider}: not installed`)
      : say(
          "agents",
          "problem",
          `${provider}: ${program} is not found, and ${added.map(({ id }) => id).join(", ")} need${added.length === 1 ? "s" : ""} it`,
          install,
        );
  if (fault !== null) return say("agents", "problem", `${provider}: ${file}: ${fault}`, "Install it again.");
  if (isTried === false)
    say(
      "agents",
      "warning",
      `${provider}: version ${version} was not tried${tested === null ? "" : ` (tried: ${tested.min} up to, not with, ${tested.below})`}`,
      "--untested takes it, at your risk.",
    );
  else say("agents", "ok", `${provider}: ${version}, ${file}`);
  const logins = ofIt.some((account) => account.name === "default") ? ofIt : [untouchedDefault(provider), ...ofIt];
  for (const account of logins) {
    const { loggedIn, detail } = await world.agents.probeLogin(provider, account.createdAt === 0 ? null : account);
    const what = `${account.id}: ${detail}`;
    const remedy = loginRemedy(account, about);
    if (loggedIn !== false) say("agents", "ok", what);
    // Your own login may well be unused where accounts are added; that is no fault.
    else
      say(
        "agents",
        account.name === "default" ? "ok" : "warning",
        account.name === "default" ? `${account.id}: not logged in` : what,
        remedy.command ?? remedy.words,
      );
  }
}

/** An account's folder, and whether a person has to do something. Errors: AppError invalid of what cannot be mended. */
function lookAtAccount({ account, holds }: AccountView, fix: boolean, say: Say): void {
  const fault = account.home === null ? null : homeFault(account.home);
  if (fault !== null) {
    const what = `the folder ${account.home} of ${account.id}: ${fault.why}`;
    if (fix && fault.mend !== null) {
      fault.mend();
      say("accounts", "ok", `${what}: mended`);
    } else
      say("accounts", "problem", what, fault.mend === null ? fault.hint : `${fault.hint}; drover doctor --fix does it`);
  }
  for (const hold of holds)
    if (hold.untilAt === null)
      say(
        "accounts",
        "warning",
        `${account.id} is held until it is released: ${hold.reason}`,
        `drover account release ${account.id}`,
      );
}

const onPath = (tool: string, probes: Probes): boolean =>
  probes.path.split(":").some((folder) => probes.modeOf(`${folder}/${tool}`) !== null);
