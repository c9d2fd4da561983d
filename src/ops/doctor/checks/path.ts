/** Programs: the system's tools, and what active loops start, as this command and as the daemon finds them. */
import { AppError } from "../../../core/errors.ts";
import type { LoopRecord } from "../../../core/records.ts";
import type { Check, Site } from "../findings.ts";
import type { StoreContext } from "../../operation.ts";
import { activeLoops } from "./active-loops.ts";
import { shellWord } from "../../../core/shell-word.ts";

export const path: Check = {
  name: "path",
  async look(site) {
    const { probes, find, ok, openStore } = site;
    let fine = true;
    const say: Site["find"] = (code, said) => {
      fine = false;
      find(code, said);
    };
    if (probes.findTool("sh") === null)
      say("shell_missing", {
        subject: "sh",
        message: "there is no sh in the system's folders",
        hint: "Every process is started through it: install one as /bin/sh.",
      });
    for (const { name, without } of probes.tools)
      if (probes.findTool(name) === null && !isOnPath(name, site))
        say("tool_missing", {
          subject: name,
          message: `${name} is not found: ${without}`,
          hint: "Install it, or put it where PATH leads.",
        });
    const opened = await openStore().catch(() => null); // the check of the store says why
    if (opened !== null) await lookAtLoops(opened, { ...site, find: say });
    if (!fine) return;
    const added = probes.path.split(":").filter((folder) => !probes.ownPath.split(":").includes(folder));
    ok(added.length === 0 ? probes.path : `${probes.ownPath}, and for processes also ${added.join(":")}`);
  },
};

const isOnPath = (tool: string, { probes }: Site): boolean =>
  probes.path.split(":").some((folder) => probes.stat(`${folder}/${tool}`) !== null);

/** The program that a loop starts by itself, as far as it is known before its start. */
function programOf({ target }: LoopRecord): string | null {
  if (target.kind === "agent") return target.command?.[0] ?? null;
  return target.kind === "workflow" || target.shell ? null : target.argv[0];
}

async function lookAtLoops(context: StoreContext, site: Site): Promise<void> {
  const { find, probes } = site;
  /** Those whose program is found by PATH alone, and where this command finds it. */
  const byPath: { readonly loop: LoopRecord; readonly name: string; readonly own: string | null }[] = [];
  const known = new Map<string, Promise<string | null>>();
  for (const loop of await activeLoops(context)) {
    if (loop.hostPin !== null && loop.hostPin !== context.hostId) continue; // another host's folders are not ours to judge
    const { cwd, env } = loop.target;
    if (!context.isFolder(cwd)) {
      find("loop_folder_missing", {
        subject: cwd,
        message: `${loop.name} works in ${cwd}, which is not there`,
        hint: `Or name another: drover loop edit ${shellWord(loop.name)} --cwd DIR`,
        command: `mkdir -p ${shellWord(cwd)}`,
      });
      continue;
    }
    const name = programOf(loop);
    if (name === null) continue;
    const hasFolder = name.includes("/");
    const key = `${name}\0${hasFolder ? cwd : ""}\0${env["PATH"] ?? ""}`;
    const looking = known.get(key) ?? context.findProgram(name, cwd, env["PATH"]);
    known.set(key, looking);
    const own = await looking;
    if (!hasFolder && env["PATH"] === undefined) byPath.push({ loop, name, own });
    // A worktree of its own may have what the folder has not.
    else if (own === null && (name.startsWith("/") || !hasFolder || (loop.target.worktree ?? "off") === "off"))
      missing(find, loop, name);
  }
  const daemons = await foundByDaemon(site, [...new Set(byPath.map(({ name }) => name))]);
  for (const { loop, name, own } of byPath) {
    if ((daemons === null ? own : (daemons[name] ?? null)) !== null) continue;
    if (own === null) missing(find, loop, name);
    else
      find("daemon_lacks_program", {
        subject: name,
        message: `${loop.name} starts ${name}, which you find as ${own} and the daemon does not: its PATH differs from yours`,
        hint: `From a shell that finds it. Or give the loop the whole path: drover loop edit ${shellWord(loop.name)} -- ${shellWord(own)} ... (your PATH: ${probes.ownPath})`,
        command: "drover down && drover up",
      });
  }
}

function missing(find: Site["find"], loop: LoopRecord, name: string): void {
  find("program_missing", {
    subject: name,
    message: `${loop.name} starts ${name}, which is not found`,
    hint: `Install it, or change the loop: drover loop edit ${shellWord(loop.name)} -- COMMAND`,
  });
}

/** Where the daemon finds these names; null where none is up, or it is of another version. */
export async function foundByDaemon(
  { world, daemon }: Pick<Site, "world" | "daemon">,
  programs: readonly string[],
): Promise<Readonly<Record<string, string | null>> | null> {
  if (programs.length === 0 || (await daemon()).kind !== "up") return null;
  try {
    const { found } = (await world.call("daemon.look", { programs })) as {
      readonly found: readonly { readonly name: string; readonly file: string | null }[];
    };
    return Object.fromEntries(found.map(({ name, file }) => [name, file]));
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return null; // one of another version: that it is one is told
  }
}
