/** How `doctor` looks: every check beside the others, each within its time, none able to hide another. It changes nothing. */
import { AppError } from "../../core/errors.ts";
import { describeDuration } from "../../core/duration.ts";
import { checks } from "./checks/index.ts";
import type { Probes } from "./checks/probes.ts";
import { type FindingCode, findingKinds, type FindingLevel } from "./finding-codes.ts";
import type { Examination, Finding, Mending, StoreContext } from "../operation.ts";
import { withReading } from "../perform.ts";
import { readConfigFile, readSettings, type Settings } from "../config/settings.ts";
import type { World } from "../world.ts";

/** What a check says of one thing. */
export interface Said {
  /** The id or path that it is about. */
  readonly subject: string;
  readonly message: string;
  readonly hint?: string;
  /** What mends it, to be typed as it is. */
  readonly command?: string;
  /** What `--fix` does; the same one for several findings is done once. */
  readonly mending?: Mending;
  /** Where it weighs less than its kind usually does. */
  readonly level?: FindingLevel;
}

/** The daemon of this host, looked at once. */
export type DaemonSeen =
  | { readonly kind: "up"; readonly pid: number; readonly version: string; readonly build: string }
  | { readonly kind: "silent"; readonly pid: number | null }
  | { readonly kind: "down" };

/** What a check is given. */
export interface Site {
  readonly world: World;
  readonly probes: Probes;
  readonly settings: Settings;
  /** Why the configuration cannot be used; null: it can. */
  readonly configFault: string | null;
  /** The store, opened for reading once for all checks, also where nothing is stored yet. Errors: AppError of opening it. */
  openStore(): Promise<StoreContext>;
  daemon(): Promise<DaemonSeen>;
  find(code: FindingCode, said: Said): void;
  ok(message: string): void;
}

/** One thing that is looked at. */
export interface Check {
  readonly name: string;
  /** Left out, and said so, where the store cannot be read. */
  readonly needsStore?: true;
  look(site: Site): Promise<void> | void;
}

/** A daemon that is starting, or a command that holds the lock for its moment, gets this long before it counts as silent. */
const SILENCE_MS = 3_000;
const LOOK_MS = 100;

/** Looks at everything. Errors: none of what is looked at; each of those is a finding. */
export async function examine(world: World, probes: Probes): Promise<Examination> {
  const { settings, configFault, problems } = await readSettingsOf(world);
  const once = <T>(make: () => Promise<T>): (() => Promise<T>) => {
    let made: Promise<T> | undefined;
    return () => (made ??= make());
  };
  let close: () => void = () => {};
  const openStore = once(
    () =>
      new Promise<StoreContext>((opened, failed) => {
        withReading(world, (context) => {
          opened(context);
          return new Promise<void>((done) => (close = done));
        }).catch(failed);
      }),
  );
  const daemon = once(() => seeDaemon(world));

  const looks = [
    configCheck(problems, world.places.configFile),
    ...checks.map(async (check): Promise<Heard> => {
      const heard: Heard = { check: check.name, found: [], fine: [] };
      let open = true;
      const site: Site = {
        world,
        probes,
        settings,
        configFault,
        async openStore() {
          if (configFault !== null) throw new AppError("invalid", "bad_config", configFault);
          return openStore();
        },
        daemon,
        find: (code, said) => {
          if (open) heard.found.push({ code, said });
        },
        ok: (message) => {
          if (open) heard.fine.push(message);
        },
      };
      try {
        if (check.needsStore === true && !(await canRead(site)))
          site.find("not_looked_at", {
            subject: check.name,
            message: "the store cannot be read",
            hint: "Mend what is said of it, then ask again.",
          });
        else await within(settings.limits.doctorCheckMs, world, async () => check.look(site));
      } catch (error) {
        const known = error instanceof AppError ? error : null;
        // What fails in a check is what it found: the others stand, and so does the command.
        site.find("check_failed", {
          subject: check.name,
          message: known?.message ?? (error instanceof Error ? error.message : String(error)),
          ...(known?.hint === undefined ? {} : { hint: known.hint }),
        });
      } finally {
        open = false;
      }
      return heard;
    }),
  ];
  try {
    return examinationOf(await Promise.all(looks), settings.limits.doctorShown);
  } finally {
    close();
  }
}

interface Heard {
  readonly check: string;
  readonly found: { readonly code: FindingCode; readonly said: Said }[];
  readonly fine: string[];
}

async function canRead(site: Site): Promise<boolean> {
  try {
    await site.openStore();
    return true;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return false; // the check of the store says why
  }
}

/** Errors: AppError unreachable `check_slow`. */
async function within(limitMs: number, world: World, look: () => Promise<void>): Promise<void> {
  const isSlow = world.wait(limitMs).then(() => {
    throw new AppError("unreachable", "check_slow", `it did not end within ${describeDuration(limitMs)}`, {
      hint: "Something that it asks hangs: git, an agent's command line, or a disk.",
    });
  });
  await Promise.race([look(), isSlow]);
}

async function readSettingsOf(world: World) {
  try {
    const text = readConfigFile(world.places);
    const { settings, problems } = await readSettings(world.env, world.places, text);
    const fault = problems.find((problem) => problem.level === "error");
    return { settings, configFault: fault?.message ?? null, problems: text === null ? null : problems };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const problem = { level: "error" as const, line: null, key: null, message: error.message };
    return { settings: await world.usualSettings(), configFault: error.message, problems: [problem] };
  }
}

/** @param problems null where there is no file */
async function configCheck(
  problems: Awaited<ReturnType<typeof readSettingsOf>>["problems"],
  file: string,
): Promise<Heard> {
  const found = (problems ?? []).map(({ level, line, message }) => ({
    code: level === "error" ? ("config_invalid" as const) : ("config_doubtful" as const),
    said: { subject: file, message: `${file}:${line ?? 1}: ${message}`, command: "drover config check" },
  }));
  const fine = problems === null ? "no file: everything is as usual" : file;
  return { check: "config", found, fine: found.length === 0 ? [fine] : [] };
}

async function seeDaemon(world: World): Promise<DaemonSeen> {
  const until = performance.now() + SILENCE_MS;
  for (;;) {
    const answer = await world.askDaemon();
    if ("health" in answer) {
      const { pid, version, build } = answer.health;
      return { kind: "up", pid, version, build };
    }
    const holder = await world.lockHolder();
    if (holder === null) return { kind: "down" };
    if (performance.now() > until) return { kind: "silent", pid: holder.pid };
    await world.wait(LOOK_MS);
  }
}

function examinationOf(all: readonly Heard[], shown: number): Examination {
  const findings: Finding[] = [];
  const mendings = new Map<string, Mending>();
  const counts = new Map<FindingCode, { level: FindingLevel; count: number; shown: number }>();
  for (const { check, found, fine } of all) {
    for (const message of fine)
      findings.push({
        check,
        level: "ok",
        code: null,
        subject: null,
        message,
        hint: null,
        command: null,
        fixable: false,
      });
    for (const { code, said } of found) {
      const level = said.level ?? findingKinds[code].level;
      const count = counts.get(code) ?? { level, count: 0, shown: 0 };
      count.count += 1;
      counts.set(code, count);
      if (said.mending !== undefined && !mendings.has(said.mending.does)) mendings.set(said.mending.does, said.mending);
      if (count.shown >= shown) continue;
      count.shown += 1;
      findings.push({
        check,
        level,
        code,
        subject: said.subject,
        message: said.message,
        hint: said.hint ?? null,
        command: said.command ?? null,
        fixable: said.mending !== undefined,
      });
    }
  }
  return {
    findings,
    counts: [...counts].map(([code, count]) => ({ code, ...count })),
    mendings: [...mendings.values()],
  };
}
