/** Worktrees: folders without a record, records without a folder, and what was interrupted. */
import { isFinal } from "../../../core/run.ts";
import type { Check } from "../findings.ts";
import { perform } from "../../perform.ts";
import { operation as prune } from "../../worktrees/prune-worktrees.ts";
import { treesOfHost } from "../../worktrees/worktree-answer.ts";
import { shellWord } from "../../../core/shell-word.ts";

/** A checkout of a large repository takes its time: so many times longer than anything else a tree may be in the making. */
const MAKING = 6;
/** Trees that are looked into by git, one after another. */
const LOOKED = 20;

export const worktrees: Check = {
  name: "worktrees",
  needsStore: true,
  async look({ world, settings, probes, openStore, daemon, find, ok }) {
    const records = await treesOfHost(await openStore());
    let fine = true;
    const pruned = {
      command: "drover worktree prune",
      mending: {
        does: "drover worktree prune: removes worktrees that hold nothing, and keeps the others",
        async perform() {
          await perform(world, prune, {});
        },
      },
    };
    const now = world.clock.now();
    const { doctorStuckMs } = settings.limits;
    for (const { path, runId, runStatus, state, createdAt } of records) {
      const isOver = runStatus === null || isFinal(runStatus);
      if (state === "making" && now - createdAt > MAKING * doctorStuckMs) {
        fine = false;
        find("worktree_making", {
          subject: path,
          message: `the worktree of ${runId} has been in the making since ${new Date(createdAt).toISOString()}`,
          ...(isOver ? pruned : { command: `drover cancel ${runId}` }),
        });
      } else if (state !== "making" && probes.stat(path) === null) {
        fine = false;
        find("worktree_gone", {
          subject: path,
          message: `the worktree of ${runId} is not there any more: ${path}`,
          ...(isOver ? pruned : { command: `drover show ${runId}` }),
        });
      }
    }
    const isUp = (await daemon()).kind === "up";
    const known = records.map(({ path }) => path);
    for (const { kind, path, holds } of await probes.trees(known, LOOKED, doctorStuckMs)) {
      fine = false;
      if (kind === "stray")
        find("worktree_stray", {
          subject: path,
          message: `${path} is of no run that is known${holds.length === 0 ? "" : `, and holds ${holds.join(", ")}`}`,
          ...(holds.length === 0 ? pruned : { hint: "Look at it: drover removes nothing that holds work." }),
        });
      else if (kind === "locked")
        find("worktree_locked", {
          subject: path,
          message: `a git that was killed left ${path} behind: every git in that worktree fails`,
          hint: "When no git works in it:",
          command: `rm ${shellWord(path)}`,
        });
      // A daemon does it at its start; without one, whoever opens the worktrees to change them.
      else
        find("worktree_half_removed", {
          subject: path,
          message: `${path} was on its way out when its daemon died`,
          ...(isUp ? { command: "drover down && drover up" } : pruned),
        });
    }
    const kept = records.filter(({ state }) => state === "kept").length;
    if (fine) ok(kept === 0 ? "none is left over" : `${kept} kept with work: drover worktree ls`);
  },
};
