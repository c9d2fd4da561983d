/** The user's systemd, asked through `systemctl --user`. */
import { existsSync, statSync } from "node:fs";
import { userInfo } from "node:os";
import { isAbsolute, join } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { Linger, ServiceControl, ServiceLook } from "../../core/service.ts";
import { asker, type Asked, type AskerOptions } from "./ask.ts";

const PROPERTIES = [
  "LoadState",
  "UnitFileState",
  "ActiveState",
  "SubState",
  "MainPID",
  "FragmentPath",
  "DropInPaths",
  "NRestarts",
  "Result",
  "NeedDaemonReload",
];

/** Folders of units that are the system's, or are emptied with the session. */
const NOT_OURS = /^\/(?:etc|usr|run|lib)\//;

export interface SystemdOptions extends AskerOptions {
  /** This user's home. */
  readonly home: string;
}

/** The manager of this user's services. */
export function systemd(options: SystemdOptions): ServiceControl {
  const { environment, home } = options;
  const ask = asker({
    ...options,
    environment: { ...environment, ...runtimeOf(environment), SYSTEMD_COLORS: "0", SYSTEMD_PAGER: "" },
  });
  const call = (args: readonly string[]): Promise<Asked> => ask(["systemctl", "--user", "--no-pager", ...args]);

  async function must(args: readonly string[]): Promise<void> {
    const { exit, fault, err } = await call(args);
    if (exit === 0) return;
    const said = fault ?? firstLine(err) ?? `exit ${exit}`;
    const away = fault !== null || /connect to bus|not been booted|No medium found/i.test(err);
    throw new AppError(
      "unreachable",
      away ? "service_unreachable" : "service_failed",
      away ? `the service manager cannot be asked: ${said}` : `systemctl --user ${args.join(" ")}: ${said}`,
      {
        hint: away
          ? "It needs a session of yours, or lingering: loginctl enable-linger"
          : `systemctl --user status ${args.at(-1) ?? ""} says more.`,
      },
    );
  }

  const own = environment["XDG_CONFIG_HOME"];
  const configs: [string, ...string[]] = [join(home, ".config")];
  if (own !== undefined && isAbsolute(own) && own !== configs[0]) configs.unshift(own);
  const usualFolders = configs.map((config) => join(config, "systemd/user")) as [string, ...string[]];

  const unit = (name: string): string => `${name}.service`;

  return {
    kind: "systemd",
    usualFolders: () => usualFolders,
    async folder() {
      const [usual] = usualFolders;
      const { exit, out } = await call(["show", "--property=UnitPath"]);
      if (exit !== 0) return usual;
      // The manager may have another configuration folder than this shell; its own comes first, with `.control`.
      const paths = out.trim().replace(/^UnitPath=/, "");
      if (` ${paths} `.includes(` ${usual} `)) return usual;
      const its = /^(\/.*?\/systemd\/user)\.control(?: |$)/.exec(paths)?.[1];
      return its === undefined || NOT_OURS.test(its) ? usual : its;
    },
    async look(name) {
      const [{ exit, out, err, fault }, linger] = await Promise.all([
        call(["show", unit(name), ...PROPERTIES.map((one) => `--property=${one}`)]),
        lingerOf(ask),
      ]);
      const said = new Map(
        out.split("\n").map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
      );
      const text = (property: string): string => said.get(property) ?? "";
      return {
        fault: exit === 0 ? null : (fault ?? firstLine(err) ?? `exit ${exit}`),
        loaded: text("LoadState") === "loaded",
        file: text("FragmentPath") || null,
        dropIns: text("DropInPaths")
          .split(" ")
          .filter((path) => path !== ""),
        enabled: ["enabled", "enabled-runtime", "linked"].includes(text("UnitFileState")),
        state: stateOf(text("ActiveState"), text("SubState")),
        pid: Number(text("MainPID")) || null,
        result: ["", "success"].includes(text("Result")) ? null : text("Result"),
        restarts: Number(text("NRestarts")) || 0,
        stale: text("NeedDaemonReload") === "yes",
        linger,
      };
    },
    reload: () => must(["daemon-reload"]),
    enable: (name) => must(["enable", unit(name)]),
    disable: (name) => must(["disable", unit(name)]),
    start: (name) => must(["start", unit(name)]),
    stop: (name) => must(["stop", unit(name)]),
  };
}

const firstLine = (text: string): string | null => text.trim().split("\n")[0] || null;

function stateOf(active: string, sub: string): ServiceLook["state"] {
  if (sub === "auto-restart") return "waiting";
  switch (active) {
    case "active":
    case "reloading":
      return "active";
    case "activating":
      return "starting";
    case "deactivating":
      return "stopping";
    case "failed":
      return "failed";
    default:
      return "inactive";
  }
}

/** Where the manager listens, for a shell that was not told: one of cron, of `su`, of a service. */
function runtimeOf(environment: AskerOptions["environment"]): Record<string, string> {
  if (environment["XDG_RUNTIME_DIR"]) return {};
  const uid = process.getuid?.();
  const folder = `/run/user/${uid}`;
  try {
    return statSync(folder).uid === uid ? { XDG_RUNTIME_DIR: folder } : {};
  } catch {
    return {}; // no session of this user was ever there
  }
}

/** Whether this user's manager outlives the last session. */
async function lingerOf(ask: (argv: [string, ...string[]]) => Promise<Asked>): Promise<Linger> {
  const { username } = userInfo();
  if (existsSync(`/var/lib/systemd/linger/${username}`)) return "on";
  const { exit, out } = await ask(["loginctl", "show-user", username, "--property=Linger", "--value"]);
  const said = out.trim();
  if (exit === 0 && said === "yes") return "on";
  return exit === 0 && said === "no" ? "off" : "unknown";
}
