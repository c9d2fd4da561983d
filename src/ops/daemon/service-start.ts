/** Starting and stopping the daemon where it is a service. */
import { existsSync } from "node:fs";
import { AppError } from "../../core/errors.ts";
import type { ServiceControl } from "../../core/service.ts";
import type { Health, LocalContext } from "../operation.ts";
import { homeOf } from "../places.ts";
import { readText, spellingOf } from "./service-facts.ts";
import { serviceName } from "./service-plan.ts";

/** A service that is installed, and the way to it. */
export interface Installed {
  readonly control: ServiceControl;
  readonly name: string;
  readonly file: string;
}

type Here = Pick<
  LocalContext,
  "askDaemon" | "call" | "env" | "lockHolder" | "places" | "service" | "settings" | "startDaemon" | "wait"
>;

/** How long a daemon that is started as a service may take to be healthy, as one that is started by hand. */
const START_PATIENCE_MS = 60_000;
const LOOK_MS = 25;

/** The service of this state folder, where one of drover's is installed. The service manager is not asked. */
export async function findInstalled({
  env,
  places,
  service,
}: Pick<Here, "env" | "places" | "service">): Promise<Installed | null> {
  const home = homeOf(env) ?? "/";
  const control = await service();
  if (control === null) return null;
  const name = serviceName(places, home);
  const { file, read } = spellingOf(control.kind);
  for (const folder of control.usualFolders()) {
    const path = file(folder, name);
    const text = existsSync(path) ? readText(path) : null;
    if (text !== null && read(text).ours) return { control, name, file: path };
  }
  return null;
}

/**
 * Has the service manager start the daemon, and waits until it answers. A daemon that was started by hand stays; one that
 * only serves what is queued steps down for it.
 * Errors: AppError unreachable `service_unreachable`, `service_failed`.
 */
export async function startInstalled(
  context: Here,
  { control, name }: Installed,
): Promise<{ readonly health: Health; readonly started: boolean }> {
  const before = await context.askDaemon();
  if ("health" in before && before.health.state === "up" && before.health.mode === "full")
    return { health: before.health, started: false };
  const look = await control.look(name);
  if (look.fault !== null)
    throw new AppError("unreachable", "service_unreachable", `the service manager cannot be asked: ${look.fault}`, {
      hint: "It needs a session of yours, or lingering: loginctl enable-linger",
    });
  if ("health" in before) await stepDown(context);
  await control.start(name);
  const deadline = performance.now() + START_PATIENCE_MS;
  for (;;) {
    const answer = await context.askDaemon();
    if ("health" in answer && answer.health.state === "up" && answer.health.mode === "full")
      return { health: answer.health, started: true };
    const { state, result } = await control.look(name);
    if (state === "failed" || state === "waiting" || state === "inactive" || performance.now() > deadline)
      throw new AppError(
        "unreachable",
        "service_failed",
        `the service ${name} was started, and its daemon is not up${result === null ? "" : ` (${result})`}`,
        {
          hint: `What it said: ${control.kind === "systemd" ? `journalctl --user --unit ${name}` : "drover daemon logs"}`,
        },
      );
    await context.wait(LOOK_MS);
  }
}

/** Has a daemon go down, whoever started it, and waits until it is gone. What runs goes on. Errors: those of the daemon. */
export async function stepDown({ call, lockHolder, wait }: Pick<Here, "call" | "lockHolder" | "wait">): Promise<void> {
  await call("daemon.stop", { drainMs: 0, stopRuns: false });
  const deadline = performance.now() + START_PATIENCE_MS;
  while ((await lockHolder()) !== null && performance.now() < deadline) await wait(LOOK_MS);
}
