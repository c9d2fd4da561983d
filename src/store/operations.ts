/** The one door to the data, on one page: every operation of the store by noun and verb. */
import type { Store } from "../core/ports.ts";
import { admissionPass, explainAdmission, setLimit, usage } from "./admission.ts";
import {
  adoptAttempt,
  attemptsToEnd,
  endedAmong,
  endingAttempt,
  ofHost,
  runAttempt,
  settleAttempt,
  startAttempt,
  takeOver,
} from "./attempts.ts";
import { listEvents } from "./events.ts";
import { joinHost, leaveHost, listHosts, renewHost, reportHost } from "./hosts.ts";
import {
  addLoop,
  archiveLoop,
  editLoop,
  getLoop,
  listLoops,
  nextFire,
  pauseLoop,
  planDueLoops,
  removeLoop,
  renameLoop,
  resumeLoop,
  runLoopNow,
  unarchiveLoop,
} from "./loops.ts";
import { addRun, cancelRun, countRuns, getRun, hooksDone, hooksDue, listRuns, retryRun } from "./runs.ts";
import type { StoreOf } from "./operation.ts";
import { listSlots } from "./slots.ts";
import { wakeSteps } from "./steps.ts";
import { resolve } from "./things.ts";

export const operations = {
  hosts: { join: joinHost, report: reportHost, renew: renewHost, leave: leaveHost, list: listHosts },
  loops: {
    add: addLoop,
    edit: editLoop,
    rename: renameLoop,
    pause: pauseLoop,
    resume: resumeLoop,
    archive: archiveLoop,
    unarchive: unarchiveLoop,
    remove: removeLoop,
    get: getLoop,
    list: listLoops,
    planDue: planDueLoops,
    runNow: runLoopNow,
    nextFire,
  },
  slots: { list: listSlots },
  runs: {
    add: addRun,
    retry: retryRun,
    cancel: cancelRun,
    get: getRun,
    list: listRuns,
    counts: countRuns,
    hooksDue,
    hooksDone,
  },
  steps: { wake: wakeSteps },
  admission: { pass: admissionPass, explain: explainAdmission, setLimit, usage },
  attempts: {
    ofHost,
    start: startAttempt,
    run: runAttempt,
    adopt: adoptAttempt,
    ending: endingAttempt,
    settle: settleAttempt,
    toEnd: attemptsToEnd,
    takeOver,
    endedAmong,
  },
  events: { list: listEvents },
  things: { resolve },
};

/** The operations keep what the port promises; does not compile where they do not. */
export const asStore = (store: StoreOf<typeof operations>): Store => store;
