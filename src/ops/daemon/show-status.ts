import { iso, type Warning, warningShape } from "../documents.ts";
import { attention } from "../why/attention.ts";
import { awayRuns, awayWords } from "../accounts/away.ts";
import { inWords } from "../fault-words.ts";
import { shortOfDisk } from "../doctor/free-disk.ts";
import { leftToRun } from "../../core/run.ts";
import { notFiring } from "../loops/loop-answer.ts";
import { loginRemedy } from "../accounts/login-remedy.ts";
import { type DaemonView, defineOperation } from "../operation.ts";
import { storeFileOf, withoutPassword } from "../config/settings.ts";
import { instant, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

/** Next fires that are told. */
const UPCOMING = 5;
/** Runs that are named one by one; one cause has them all wait. */
const AWAY_SHOWN = 5;

export const operation = defineOperation({
  name: "status",
  where: "local",
  raises: ["conflict"],
  summary: "Show the daemon, the store, what runs and what fires next",
  input: {},
  output: object({
    daemon: object({
      state: oneOf(["up", "draining", "down", "unresponsive"]),
      mode: nullable(oneOf(["full", "until_idle"])),
      pid: nullable(integer),
      version: nullable(string),
      uptimeMs: nullable(integer),
    }),
    store: object({ kind: oneOf(["sqlite", "postgres"]), location: string }),
    host: object({ id: nullable(string), name: nullable(string), status: nullable(string) }),
    /** `forPerson`: those of the queued and waiting ones that only a person lets go on. */
    runs: object({ running: integer, queued: integer, waiting: integer, forPerson: integer }),
    next: nullable(object({ loop: string, at: instant })),
    /** The next fires, of each loop one; the first of them is `next`. */
    upcoming: listOf(object({ loop: string, at: instant })),
    warnings: listOf(warningShape),
  }),
  cli: { examples: ["status", "status --json"] },
  async run(context) {
    const { settings, places, build } = context;
    const answer = await context.askDaemon();
    const health = "health" in answer ? answer.health : null;
    const holder = health === null ? await context.lockHolder() : null;
    const seen = await context.reading(async ({ store, hostId }) => ({
      away: await Promise.all(
        (await awayRuns(store, null))
          .slice(0, AWAY_SHOWN)
          .map(async (run) => ({ run, words: await awayWords(store, run.id) })),
      ),
      counts: await store.runs.counts({}),
      upcoming: await store.loops.nextFires({ limit: UPCOMING }),
      attention: await attention(store, context.clock.now()),
      accounts: await store.accounts.list({}),
      providers: await store.accounts.providerHolds({}),
      host: (await store.hosts.list({})).find((host) => host.id === hostId) ?? null,
    }));
    const warnings: Warning[] = [];
    const next = seen?.upcoming[0] ?? null;
    const mode: DaemonView["mode"] = health?.mode ?? "none";
    // Whoever holds the lock may well fire, even when it does not answer.
    if (next !== null && holder === null) warnings.push(...notFiring({ mode }));
    const counts = seen?.counts ?? { running: 0, queued: 0, waiting: 0, forPerson: 0 };
    const isAway = health === null && holder === null;
    if (isAway && counts.forPerson > 0)
      warnings.push({
        code: "left_for_person",
        message: `${counts.forPerson === 1 ? "a run waits" : `${counts.forPerson} runs wait`} for a person, and no daemon is running meanwhile`,
        hint: "Do what is said below, then: drover up",
      });
    const working = counts.running + counts.queued;
    if (isAway && next === null && working > 0 && leftToRun(counts) > 0)
      warnings.push({
        code: "daemon_down",
        message: "no daemon is running: what is queued does not start",
        hint: "drover up",
      });
    if (holder !== null)
      warnings.push({
        code: "daemon_unresponsive",
        message: `a daemon${holder.pid === null ? "" : ` (pid ${holder.pid})`} holds the lock and does not answer`,
        hint: `Its log says more: ${places.daemonLog}`,
      });
    if (health !== null && health.version.split(".", 2).join() !== build.version.split(".", 2).join())
      warnings.push({
        code: "restart_needed",
        message: `the daemon is version ${health.version}, this is ${build.version}`,
        hint: "drover down && drover up",
      });
    // Those that only a person can let go on; the others end by themselves.
    for (const { account, holds } of seen?.accounts ?? []) {
      const hold = holds.find((one) => one.untilAt === null);
      if (hold === undefined) continue;
      const remedy =
        account.status === "auth" ? loginRemedy(account, await context.agents.about(account.provider)) : null;
      const login = remedy === null ? "" : remedy.command === null ? `${remedy.words}, then ` : `${remedy.command} && `;
      warnings.push({
        code: "account_held",
        message: `${account.id} is held until it is released: ${inWords(hold.reason)}`,
        hint: `${login}drover account release ${account.id}`,
      });
    }
    for (const hold of seen?.providers ?? [])
      if (hold.untilAt === null)
        warnings.push({
          code: "provider_held",
          message: `every account of ${hold.subjectId} is held until it is released: ${inWords(hold.reason)}`,
          hint: `drover agent release ${hold.subjectId}`,
        });
    for (const { run, words } of seen?.away ?? [])
      warnings.push({
        code: "program_away",
        message: `the run ${run.id}${run.loopName === null ? "" : ` of ${run.loopName}`} waits because its agent's program is not there: ${words}`,
        hint: `Install it, or put it where the daemon's PATH leads; drover why ${run.id}`,
      });
    warnings.push(...(seen?.attention ?? []));
    const short = await shortOfDisk(places.state, settings.limits.minFreeBytes);
    if (short !== null || seen?.host?.status === "disk")
      warnings.push({
        code: "disk",
        message: `${short ?? "free disk space is short"}: nothing starts`,
        hint: "Free some space, or lower limits.minFreeBytes.",
      });
    return {
      daemon: {
        state: health?.state ?? (holder === null ? "down" : "unresponsive"),
        mode: health?.mode ?? null,
        pid: health?.pid ?? holder?.pid ?? null,
        version: health?.version ?? null,
        uptimeMs: health === null ? null : Math.max(0, context.clock.now() - Date.parse(health.startedAt)),
      },
      store: {
        kind: storeFileOf(settings.store, places) === null ? "postgres" : "sqlite",
        location: storeFileOf(settings.store, places) ?? withoutPassword(settings.store),
      },
      host: {
        id: health?.hostId ?? seen?.host?.id ?? null,
        name: health?.hostName ?? seen?.host?.name ?? null,
        status: seen?.host?.status ?? null,
      },
      runs: counts,
      next: next === null ? null : { loop: next.name, at: iso(next.at) },
      upcoming: (seen?.upcoming ?? []).map(({ name, at }) => ({ loop: name, at: iso(at) })),
      warnings,
    };
  },
});
