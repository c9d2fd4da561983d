/** States without a way out: what waits for something that can never come, and what holds on to what is over. */
import { describeDuration } from "../../../core/duration.ts";
import type { Stuck } from "../../../core/ports.ts";
import type { Check, Site } from "../findings.ts";
import type { Mending } from "../../operation.ts";
import { operation as pauseLoop } from "../../loops/pause-loop.ts";
import { perform } from "../../perform.ts";
import { operation as release } from "../../runs/release-stuck.ts";
import { operation as resumeLoop } from "../../loops/resume-loop.ts";

/** Of each kind so many times what is listed is asked for, so that it can be said how many there are. */
const MORE = 10;

export const stuck: Check = {
  name: "stuck",
  needsStore: true,
  async look(site) {
    const { settings, openStore, daemon, world, ok } = site;
    const { store, hostId } = await openStore();
    const { doctorShown, doctorRuns, doctorStuckMs, doctorGoneMs } = settings.limits;
    const found = await store.stuck.find({
      hostId,
      limit: MORE * doctorShown,
      looked: doctorRuns,
      oldMs: doctorStuckMs,
      goneMs: doctorGoneMs,
    });
    const isUp = (await daemon()).kind === "up";
    const now = world.clock.now();
    // Without a daemon nothing is woken, and that is told of the daemon.
    const faults = found.filter(({ kind }) => kind !== "overdue" || isUp);
    for (const one of faults) tell(one, site, now);
    if (faults.length === 0) ok("everything that waits has something to wait for");
  },
};

function tell(one: Stuck, { find, world }: Site, now: number): void {
  const of = one.loop === null ? "" : ` of ${one.loop}`;
  const since = one.at === null ? "" : describeDuration(Math.max(0, now - one.at));
  const silent = one.at === null ? "which the store does not know" : `which has been silent for ${since}`;
  const anew = `drover cancel ${one.runId} && drover retry ${one.runId}`;
  switch (one.kind) {
    case "run":
      return find("run_stuck", {
        subject: one.id,
        message: `the run ${one.id}${of} is not over, and none of its steps is left`,
        command: anew,
      });
    case "step":
      return find("step_stuck", {
        subject: one.id,
        message: `a step of ${one.runId}${of} is ${one.reason}, and nothing will ever wake it`,
        command: anew,
      });
    case "overdue":
      return find("step_overdue", {
        subject: one.id,
        message: `a step of ${one.runId}${of} should have been woken ${since} ago`,
        command: "drover down && drover up",
      });
    case "turn":
      return find("turn_stuck", {
        subject: one.id,
        message: `the run ${one.id}${of} waits for its turn, and nobody is before it`,
        command: anew,
      });
    case "ending":
      return find("attempt_ending", {
        subject: one.id,
        message: `an attempt of ${one.runId}${of} has been ending for ${since}`,
        command: `drover show ${one.runId}`,
      });
    case "host_gone":
      return find("attempt_host_gone", {
        subject: one.id,
        message: `an attempt of ${one.runId}${of} is at work on the host ${one.hostId}, ${silent}`,
        hint: "Start that host's daemon: it says what became of it.",
        command: `drover show ${one.runId}`,
      });
    case "claim":
      return find("claim_stuck", {
        subject: one.id,
        message: `the attempt ${one.id}${of} is over, and holds units of a cap still`,
        command: "drover doctor --fix",
        mending: letGo(world, `give back what ${one.id} holds of caps`, { claimsOf: [one.id] }),
      });
    case "loop": {
      const command = `drover loop pause ${one.id} && drover loop resume ${one.id}`;
      return find("loop_asleep", {
        subject: one.id,
        message: `the loop ${one.loop} is active, and nothing will ever wake it`,
        command,
        mending: {
          does: `${command}: plans ${one.loop} anew`,
          async perform() {
            await perform(world, pauseLoop, { loop: one.id, reason: "it had no time to be woken at" });
            await perform(world, resumeLoop, { loop: one.id });
          },
        },
      });
    }
    case "slot": {
      const at = new Date(one.at ?? 0).toISOString();
      const loop = one.loop ?? one.id;
      const run =
        one.runId === null
          ? "never had a run"
          : one.reason === null
            ? `its run ${one.runId} is not known`
            : `its run ${one.runId} is ${one.reason}`;
      return find("slot_open", {
        subject: `${loop}@${at}`,
        message: `the slot ${at} of ${loop} has no outcome, and ${run}`,
        command: "drover doctor --fix",
        mending: letGo(world, `record the slot ${at} of ${loop} as ${one.reason ?? "missed"}`, {
          slots: [`${one.id}@${one.at}`],
        }),
      });
    }
    case "account":
      return find("account_absent", {
        subject: one.id,
        message: `the run ${one.id}${of} waits for the account ${one.reason}, which is not there`,
        hint: `Or add it: drover account add ${(one.reason ?? "").replace(":", " ")}`,
        command: `drover cancel ${one.id}`,
      });
    case "pinned":
      return find("host_silent", {
        subject: one.id,
        message: `${one.reason === "1" ? "a run is" : `${one.reason} runs are`} bound to the host ${one.id}, ${silent}`,
        hint: "Start that host's daemon, or cancel the runs and start them here.",
        command: `drover cancel ${one.runId}`,
      });
  }
}

const letGo = (world: Site["world"], does: string, input: object): Mending => ({
  does,
  async perform() {
    await perform(world, release, input);
  },
});
