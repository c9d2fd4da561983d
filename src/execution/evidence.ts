import { basename } from "node:path";
import type { Judgement } from "../core/ports.ts";
import { attemptIdOf, plantTombstone, readFolder } from "./attempt-folder.ts";
import type { Evidence, Progress, Seen } from "./judge.ts";
import { judge, knownDead } from "./judge.ts";
import type { Identity, ProcessTable } from "./processes.ts";
import { ATTEMPT_MARK, identify, isAlive } from "./processes.ts";

/** Reads the evidence of one attempt's folder, plants and reads again as the table asks, and judges. */
export function judgeFolder(path: string, sameBoot: boolean, mayPlant: boolean, table: ProcessTable): Judgement {
  let progress: Progress = { mayPlant, planted: null, readAgain: false, looked: false };
  let evidence = gather(path, sameBoot, progress, table);
  for (;;) {
    const verdict = judge(evidence, progress);
    if ("judgement" in verdict) return verdict.judgement;
    switch (verdict.next) {
      case "plant":
        progress = { ...progress, planted: plantTombstone(path) };
        break;
      case "read_again":
        break;
      case "look":
        progress = { ...progress, looked: true };
        break;
    }
    const before = evidence;
    evidence = gather(path, sameBoot, progress, table);
    progress = { ...progress, readAgain: knownDead(before, evidence) };
  }
}

function gather(path: string, sameBoot: boolean, progress: Progress, table: ProcessTable): Evidence {
  // The files first: a shim found dead afterwards has had its chance to write.
  const folder = readFolder(path);
  const command = folder.run?.command ?? null;
  return {
    sameBoot,
    folderThere: folder.there,
    run: folder.run,
    shim: sameBoot ? living(folder.shim, path, table) : null,
    id: folder.id,
    command: sameBoot ? living(command, path, table) : null,
    marked: progress.looked && sameBoot ? markedShim(attemptIdOf(basename(path)), table) : null,
    startedTicks: ticksOf(command) ?? ticksOf(folder.shim),
    startedAt: folder.startedAt,
    endedAt: folder.endedAt,
  };
}

function living(identity: Identity | null, path: string, table: ProcessTable): Seen | null {
  const found = identify(identity, path, table);
  return found === null ? null : { pid: found.pid, started: found.started };
}

const ticksOf = (identity: Identity | null): number | null =>
  identity?.started == null ? null : Number(identity.started);

/** A live process with that mark: the leader of a session if there is one (the shim), else the lowest pid. */
function markedShim(attemptId: string, table: ProcessTable): Seen | null {
  const marked = (table.snapshot().byMark.get(`${ATTEMPT_MARK}=${attemptId}`) ?? []).filter(isAlive);
  const found = marked.find((one) => one.session === one.pid) ?? marked.toSorted((a, b) => a.pid - b.pid)[0];
  return found === undefined ? null : { pid: found.pid, started: found.started };
}
