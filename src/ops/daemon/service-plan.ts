/** What a service of drover's is to start, and with what: decided from the command that installs it. */
import { createHash } from "node:crypto";
import { basename, dirname, isAbsolute, join } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { ServiceKind } from "../../core/service.ts";
import type { Warning } from "../documents.ts";
import type { Places } from "../places.ts";
import { withoutPassword } from "../config/settings.ts";

/** Everything that a unit says beside how its manager spells it. */
export interface ServicePlan {
  /** `drover`; for a state folder that is not the usual one also a key of it. */
  readonly name: string;
  readonly node: string;
  /** Options of Node, the program, its words. */
  readonly args: readonly string[];
  readonly program: string;
  /** In the order in which it is written. */
  readonly env: Readonly<Record<string, string>>;
  /** How long the manager waits for a stop before it kills the daemon. */
  readonly stopLimitMs: number;
  /** From an end to the next start. */
  readonly restartMs: number;
  /** Where what is said before the log is open goes, where the manager keeps none itself. */
  readonly outputFile: string;
}

/** What the installing command knows of itself and its host. */
export interface PlanSources {
  readonly kind: ServiceKind;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly places: Places;
  /** This user's home, and the one that the system has for this user, which the manager gives its services. */
  readonly home: string;
  readonly usualHome: string | null;
  /** The Node that runs, with its links resolved. */
  readonly node: string;
  /** Options that every daemon's Node is given. */
  readonly nodeOptions: readonly string[];
  /** The program as it was called, absolute. */
  readonly program: string;
  /** PATH with the usual folders. */
  readonly path: string;
  readonly store: string;
  readonly shutdownMs: number;
  readonly restartMs: number;
  /** The file that a path leads to; null where there is none. */
  realpath(path: string): string | null;
}

/** Beyond our own limit for going down: the manager kills only a daemon that is stuck. */
const STOP_MARGIN_MS = 25_000;
/** Names of folders that belong to one version, and go with it. */
const VERSIONED = /\/v?\d+\.\d+(?:\.\d+)?(?:[_-][^/]*)?(?:\/|$)|@\d+\.\d+|\/\.nvm\/versions\//;
/** Folders that are made for one session or one call. */
const PASSING = /\/fnm_multishells\/|\/_npx\/|\/node-gyp-bin\/|\/node_modules\/\.bin\//;
/** Folders that the system empties. */
const EMPTIED = /^\/(?:tmp|var\/tmp|dev\/shm)\//;
/** Where a link to the current Node stays while versions come and go. */
const LASTING_FOLDERS = ["/usr/local/bin", "/usr/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin"];
/** Of the caller's environment, what decides where things are or how they are spelled. */
const PASSED = ["LANG", "LC_ALL", "TZ"];

/** The service's name: one for each state folder, so that two installations do not share one. */
export function serviceName({ state }: Pick<Places, "state">, home: string): string {
  if (state === join(home, ".local/state/drover")) return "drover";
  return `drover-${createHash("sha256").update(state).digest("hex").slice(0, 8)}`;
}

/**
 * Plans the service. Errors: AppError invalid `store_password` where the address of the store would put a password into the
 * unit, `unfit_path` for a path that no unit can hold.
 */
export function servicePlanOf(sources: PlanSources): {
  readonly plan: ServicePlan;
  readonly warnings: readonly Warning[];
} {
  const { env, places, home, program, store } = sources;
  const warnings: Warning[] = [];
  const node = lastingNode(sources);
  if (VERSIONED.test(node) || PASSING.test(node))
    warnings.push({
      code: "service_node_versioned",
      message: `the service starts ${node}, which goes when that version of Node is removed`,
      hint: "After a change of Node: drover daemon install --enable",
    });
  if (PASSING.test(program) || EMPTIED.test(program))
    warnings.push({
      code: "service_program_passing",
      message: `the service starts ${program}, which lies in a folder that may be emptied`,
      hint: "Install drover for good, as with npm install --global, and install the service with that one.",
    });
  else if (VERSIONED.test(program) && !VERSIONED.test(node))
    warnings.push({
      code: "service_program_versioned",
      message: `the service starts ${program}, which goes when that version is removed`,
      hint: "After a change: drover daemon install --enable",
    });
  const given = env["DROVER_STORE"];
  if (given !== undefined && given !== "" && hasPassword(given))
    throw new AppError(
      "invalid",
      "store_password",
      "the address of the store holds a password, and a unit is no place for one",
      {
        path: "DROVER_STORE",
        hint: `Put the password into ~/.pgpass, or the address as store: into ${places.configFile} (mode 0600), and unset DROVER_STORE.`,
      },
    );
  const postgres = Object.keys(env).filter((name) => /^PG[A-Z]+$/.test(name) && env[name] !== "");
  if (store.startsWith("postgres") && postgres.length > 0)
    warnings.push({
      code: "service_lacks_variables",
      message: `${postgres.join(", ")} ${postgres.length === 1 ? "is" : "are"} set here and not put into the service`,
      hint: "Say in the store's address, or in ~/.pgpass, what they say.",
    });
  const baked: Record<string, string> = { PATH: lastingPath(sources.path, node) };
  if (home !== sources.usualHome) baked["HOME"] = home;
  if (places.home !== null) baked["DROVER_HOME"] = places.home;
  else
    for (const name of ["XDG_CONFIG_HOME", "XDG_STATE_HOME"]) {
      const value = env[name];
      if (value !== undefined && isAbsolute(value)) baked[name] = value;
    }
  if (given !== undefined && given !== "") baked["DROVER_STORE"] = given;
  for (const name of PASSED) {
    const value = env[name];
    if (value !== undefined && value !== "") baked[name] = value;
  }
  const name = serviceName(places, home);
  baked["DROVER_SERVICE"] = name;
  const plan: ServicePlan = {
    name,
    node,
    program,
    args: [...sources.nodeOptions, program, "up", "--foreground", "--json"],
    env: baked,
    stopLimitMs: sources.shutdownMs + STOP_MARGIN_MS,
    restartMs: sources.restartMs,
    outputFile: join(places.logs, "daemon.start"),
  };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  for (const text of [plan.node, ...plan.args, plan.outputFile, ...Object.values(plan.env)])
    if (/[\u0000-\u001f\u007f]/.test(text))
      throw new AppError(
        "invalid",
        "unfit_path",
        `a unit cannot hold a control character, and ${JSON.stringify(text)} has one`,
        {
          hint: "Rename the folder, or leave it out of PATH.",
        },
      );
  return { plan, warnings };
}

/** Whether a store's address says a password, in either of the places where it can. */
export const hasPassword = (store: string): boolean => withoutPassword(store) !== store || /[?&]password=/i.test(store);

/** A path to the Node that runs which stays when it is upgraded, where there is one; else its own. */
function lastingNode({ node, env, home, realpath }: PlanSources): string {
  const own = realpath(node) ?? node;
  const folders = [
    ...(env["PATH"] ?? "").split(":"),
    ...LASTING_FOLDERS,
    join(home, ".local/share/fnm/aliases/default/bin"),
    join(home, ".fnm/aliases/default/bin"),
  ];
  const candidates = folders
    .filter(isAbsolute)
    .map((folder) => join(folder, basename(node)))
    .filter((file) => !PASSING.test(file) && !VERSIONED.test(file) && realpath(file) === own);
  return (VERSIONED.test(own) || PASSING.test(own) ? candidates[0] : undefined) ?? own;
}

/** PATH without what is there for one session only, and with Node's own folder, by which programs written for it find it. */
function lastingPath(path: string, node: string): string {
  const kept = path.split(":").filter((folder) => isAbsolute(folder) && !PASSING.test(`${folder}/`));
  const own = dirname(node);
  return [...new Set(kept.includes(own) ? kept : [own, ...kept])].join(":");
}
