/**
 * The user's launchd, asked through `launchctl`. Its calls follow Apple's manual of launchctl(1) for macOS 11 and newer; no test
 * of ours runs on a Mac, so what is tested is what is asked and how answers are read.
 */
import { join } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { ServiceControl } from "../../core/service.ts";
import { asker, type AskerOptions, type Asked } from "./ask.ts";

export interface LaunchdOptions extends AskerOptions {
  readonly home: string;
  readonly uid: number;
  /** Asks in place of the real command: for tests. */
  readonly ask?: (argv: [string, ...string[]]) => Promise<Asked>;
}

/** What `launchctl` answers for a service that it does not know. */
const UNKNOWN = 113;

/** The manager of this user's agents. */
export function launchd(options: LaunchdOptions): ServiceControl {
  const ask = options.ask ?? asker(options);
  const folder = join(options.home, "Library/LaunchAgents");
  const call = (...args: string[]): Promise<Asked> => ask(["launchctl", ...args]);
  /** The session at the screen where there is one, else the user's own, as over ssh. */
  const domain = async (): Promise<string> =>
    (await call("print", `gui/${options.uid}`)).exit === 0 ? `gui/${options.uid}` : `user/${options.uid}`;
  const target = async (name: string): Promise<string> => `${await domain()}/${name}`;
  const words = ({ fault, err, exit }: Asked): string => fault ?? (err.trim().split("\n")[0] || `exit ${exit}`);

  async function must(args: readonly string[], allowed: readonly number[] = []): Promise<void> {
    const answer = await call(...args);
    if (answer.exit === 0 || (answer.exit !== null && allowed.includes(answer.exit))) return;
    throw new AppError(
      "unreachable",
      answer.exit === null ? "service_unreachable" : "service_failed",
      `launchctl ${args.join(" ")}: ${words(answer)}`,
      { hint: "Look at it with `launchctl print`; it needs a session of yours at the machine." },
    );
  }

  const isLoaded = async (name: string): Promise<boolean> => (await call("print", await target(name))).exit === 0;

  return {
    kind: "launchd",
    usualFolders: () => [folder],
    folder: async () => folder,
    async look(name) {
      const at = await domain();
      const [printed, disabled] = await Promise.all([call("print", `${at}/${name}`), call("print-disabled", at)]);
      const loaded = printed.exit === 0;
      const field = (key: string): string | null =>
        new RegExp(`^\\s*${key} = (.*)$`, "m").exec(printed.out)?.[1] ?? null;
      const pid = Number(field("pid")) || null;
      const exit = field("last exit code");
      return {
        fault: loaded || printed.exit === UNKNOWN ? null : words(printed),
        loaded,
        file: field("path"),
        dropIns: [],
        // The file itself says Disabled; what was enabled is kept apart.
        enabled: new RegExp(`"${name.replaceAll(/[.]/g, "\\.")}" => (?:enabled|false)`).test(disabled.out),
        state: pid !== null ? "active" : field("state") === "spawn scheduled" ? "waiting" : "inactive",
        pid,
        result: exit === null || /^(?:0|\(never exited\))$/.test(exit) ? null : `exit ${exit}`,
        restarts: Math.max(0, Number(field("runs") ?? 0) - 1),
        stale: false,
        linger: null,
      };
    },
    // A file is read when it is bootstrapped, which a stop undoes and a start does again.
    reload: async () => {},
    enable: async (name) => must(["enable", await target(name)]),
    disable: async (name) => must(["disable", await target(name)]),
    async start(name) {
      if (!(await isLoaded(name))) await must(["bootstrap", await domain(), join(folder, `${name}.plist`)]);
      await must(["kickstart", await target(name)]);
    },
    async stop(name) {
      if (await isLoaded(name)) await must(["bootout", await target(name)], [UNKNOWN]);
    },
  };
}
