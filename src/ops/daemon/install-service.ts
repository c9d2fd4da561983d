import { chmodSync, lstatSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { AppError } from "../../core/errors.ts";
import { PROVIDERS } from "../accounts/agent-target.ts";
import { type Warning, warningShape } from "../documents.ts";
import { flag } from "../fields.ts";
import { defineOperation, type LocalContext, type SelfTest } from "../operation.ts";
import { serviceShape } from "./service-answer.ts";
import { planHere, readText, serviceFacts, serviceFileOf, spellingOf } from "./service-facts.ts";
import { startInstalled, stepDown } from "./service-start.ts";
import { serviceStateOf, type ServiceState } from "./service-state.ts";
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

const testShape = object({ ok: boolean, runId: nullable(string), message: string });

export const operation = defineOperation({
  name: "daemon.install",
  where: "local",
  raises: ["conflict", "unreachable"],
  summary: "Install the daemon as a service of yours: systemd on Linux, launchd on macOS",
  input: {
    enable: flag("have it start by itself, start it now, and try it with a run of one second"),
    replace: flag("also over a file that is not drover's, or that somebody has changed"),
    dryRun: flag("show what would be written and done, and do nothing"),
  },
  output: object({
    /** What became of its file, with --dry-run what would. */
    change: oneOf(["created", "replaced", "unchanged"]),
    dryRun: boolean,
    file: string,
    /** What the file holds. */
    text: string,
    /** The PATH that the daemon and what it starts get. */
    path: string,
    /** Where the program of each agent is found on that PATH; null where it is not. */
    agents: listOf(object({ provider: string, program: string, file: nullable(string) })),
    started: boolean,
    pid: nullable(integer),
    /** The run that was tried under the service; null where none was. */
    selfTest: nullable(testShape),
    /** How it stands afterwards; with --dry-run, as it is. */
    service: nullable(serviceShape),
    warnings: listOf(warningShape),
  }),
  cli: {
    exit: ({ selfTest: tried }: { readonly selfTest: SelfTest | null }) => (tried?.ok === false ? 1 : 0),
    examples: ["daemon install --enable", "daemon install --dry-run"],
    notes: [
      "Absolute paths of Node and drover and this PATH are written into it, no secrets. Run it again after a change of either.",
      "A service of yours ends with your last session unless lingering is on: loginctl enable-linger.",
    ],
  },
  async run(context, input) {
    const control = await context.service();
    if (control === null)
      throw new AppError("unreachable", "no_service_manager", "neither systemd nor launchd is found here", {
        hint: "Have `drover up` run at login or boot in another way, as with @reboot in a crontab.",
      });
    const { plan, warnings: planned } = await planHere(control, context);
    const warnings: Warning[] = [...planned];
    const { name, file } = await serviceFileOf(control, context);
    const { text: write, read } = spellingOf(control.kind);
    const text = write(plan);
    const before = readText(file);
    const found = before === null ? null : read(before);
    if (found !== null && before !== text && !input.replace) {
      if (!found.ours)
        throw new AppError("conflict", "service_foreign", `${file} was not written by drover`, {
          path: file,
          hint: "--replace puts drover's in its place; --dry-run shows it.",
        });
      if (found.edited)
        throw new AppError("conflict", "service_edited", `${file} was changed by hand`, {
          path: file,
          hint:
            control.kind === "systemd"
              ? `Put what is to stay into a file beside it, with \`systemctl --user edit ${name}\`; then --replace.`
              : "--replace writes it anew; --dry-run shows what.",
        });
    }
    if (before === null && !input.replace && isLink(file))
      throw new AppError("conflict", "service_foreign", `${file} is a link to what is not there`, {
        path: file,
        hint: "Somebody may be about to put it there. --replace puts drover's in the link's place.",
      });
    const look = await control.look(name);
    if (look.fault !== null) {
      const hint =
        control.kind === "systemd"
          ? "It needs a session of yours, or lingering: loginctl enable-linger"
          : "It needs a session of yours at the machine.";
      const message = `the service manager cannot be asked: ${look.fault}`;
      // Nothing half-done: what cannot be enabled is not written.
      if (input.enable && !input.dryRun) throw new AppError("unreachable", "service_unreachable", message, { hint });
      warnings.push({ code: "service_unreachable", message: `${message}; it reads the file when it starts`, hint });
    }
    const change = before === null ? "created" : before === text ? "unchanged" : "replaced";
    let started = false;
    let pid: number | null = null;
    let tried: SelfTest | null = null;
    if (!input.dryRun) {
      if (change !== "unchanged") writeWhole(file, text);
      if (look.fault === null && (change !== "unchanged" || look.stale || !look.loaded)) await control.reload();
      if (input.enable) {
        await control.enable(name);
        started = await restart(context, { changed: change !== "unchanged" || look.stale, name });
        const { health } = await startInstalled(context, { control, name, file });
        pid = health.pid;
        tried = await context.selfTest();
      }
    }
    const after = await serviceFacts(context);
    return {
      change,
      dryRun: input.dryRun,
      file,
      text,
      path: plan.env["PATH"] ?? "",
      agents: await agentsOn(context, plan.env["PATH"] ?? ""),
      started,
      pid,
      selfTest: tried,
      service: after === null ? null : serviceStateOf(after),
      warnings,
    };

    /** Has a daemon go down that is not what this service would start now; answers whether one is to be started. */
    async function restart(
      here: LocalContext,
      { changed, name: own }: { readonly changed: boolean; readonly name: string },
    ): Promise<boolean> {
      const answer = await here.askDaemon();
      if (!("health" in answer)) return true;
      const { service, build } = answer.health;
      if (service === own && build === here.build.id && !changed) return false;
      await stepDown(here);
      // The manager has to have seen the end before it starts another.
      if (service === own) await control?.stop(own);
      return true;
    }
  },
});

/** Writes a file for its owner to change and others to read, as these files are; the old one is there until the new one is whole. */
function writeWhole(file: string, text: string): void {
  const fresh = `${file}.${process.pid}.new`;
  try {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(fresh, text, { mode: 0o644 });
    chmodSync(fresh, 0o644);
    renameSync(fresh, file);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    throw new AppError("unreachable", "service_unwritable", `the service's file cannot be written (${code})`, {
      path: file,
      hint: "Its folder must be writable for this user.",
      cause: error,
    });
  }
}

/** Where each agent's program is found on a PATH. */
async function agentsOn({ agents, findProgram }: Pick<LocalContext, "agents" | "findProgram">, path: string) {
  const found = await Promise.all(
    PROVIDERS.map(async (provider) => {
      const { program } = await agents.about(provider);
      return program === null ? null : { provider, program, file: await findProgram(program, "/", path) };
    }),
  );
  return found.filter((one) => one !== null);
}

export type InstallAnswer = {
  readonly change: "created" | "replaced" | "unchanged";
  readonly dryRun: boolean;
  readonly file: string;
  readonly text: string;
  readonly path: string;
  readonly agents: readonly { readonly provider: string; readonly program: string; readonly file: string | null }[];
  readonly started: boolean;
  readonly pid: number | null;
  readonly selfTest: SelfTest | null;
  readonly service: ServiceState | null;
  readonly warnings: readonly Warning[];
};

const isLink = (file: string): boolean => lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink() === true;
