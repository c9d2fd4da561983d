/** The one door to the data, on one page: every operation of the store by noun and verb. */
import { ensure } from "../core/errors.ts";
import type { Store } from "../core/ports.ts";
import {
  accountAnswered,
  addAccount,
  enableAccount,
  getAccount,
  holdAccount,
  holdProvider,
  listAccounts,
  providerHolds,
  releaseAccount,
  releaseProvider,
  removeAccount,
} from "./accounts.ts";
import { admissionPass, explainAdmission, removeLimit, setLimit, usage } from "./admission.ts";
import {
  adoptAttempt,
  attemptsAmong,
  attemptsToEnd,
  endedAmong,
  endingAttempt,
  ofHost,
  runAttempt,
  sessionOfAttempt,
  settleAttempt,
  startAttempt,
  takeOver,
} from "./attempts.ts";
import { applyDeclared, declaredLoops, declaredRest, ownedLoops } from "./declared.ts";
import { listEvents } from "./events.ts";
import { listPrunable, pruneHistory } from "./history.ts";
import { addHistory, pageOfHistory } from "./history-copy.ts";
import { joinHost, leaveHost, listHosts, renewHost, reportHost } from "./hosts.ts";
import {
  addLoop,
  addPausedLoops,
  archiveLoop,
  editLoop,
  getLoop,
  listLoops,
  nextFires,
  pauseLoop,
  planDueLoops,
  previewLoop,
  removeLoop,
  renameLoop,
  resumeLoop,
  runLoopNow,
  unarchiveLoop,
} from "./loops.ts";
import {
  addRun,
  cancelRun,
  countRuns,
  durationsLike,
  getRun,
  hooksDone,
  hooksDue,
  listRuns,
  retryRun,
  runsBeforeTurn,
} from "./runs.ts";
import { storeOf, type StoreOf } from "./operation.ts";
import { listSlots, missedSlots } from "./slots.ts";
import { wakeSteps } from "./steps.ts";
import { findStuck, newestInstant, releaseStuck } from "./stuck.ts";
import { collectPrompts, getPrompt, putPrompt } from "./prompts.ts";
import { endLive, standDown } from "./restores.ts";
import { offer, resolve } from "./things.ts";
import { putDefinition } from "./definitions.ts";
import { endedSteps, judgeSteps, stepsToJudge } from "./judging.ts";
import {
  beginWorktree,
  getWorktree,
  listWorktrees,
  lookedWorktree,
  madeWorktree,
  worktreesToTidy,
} from "./worktrees.ts";

export const operations = {
  hosts: { join: joinHost, report: reportHost, renew: renewHost, leave: leaveHost, list: listHosts },
  loops: {
    add: addLoop,
    addPaused: addPausedLoops,
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
    nextFires,
    preview: previewLoop,
  },
  declared: { loops: declaredLoops, owned: ownedLoops, rest: declaredRest, apply: applyDeclared },
  slots: { list: listSlots, missed: missedSlots },
  runs: {
    add: addRun,
    retry: retryRun,
    cancel: cancelRun,
    get: getRun,
    list: listRuns,
    beforeTurn: runsBeforeTurn,
    durationsLike,
    counts: countRuns,
    hooksDue,
    hooksDone,
  },
  steps: { wake: wakeSteps, toJudge: stepsToJudge, ended: endedSteps, judge: judgeSteps },
  definitions: { put: putDefinition },
  admission: { pass: admissionPass, explain: explainAdmission, setLimit, removeLimit, usage },
  attempts: {
    ofHost,
    start: startAttempt,
    session: sessionOfAttempt,
    run: runAttempt,
    adopt: adoptAttempt,
    ending: endingAttempt,
    settle: settleAttempt,
    toEnd: attemptsToEnd,
    takeOver,
    endedAmong,
    among: attemptsAmong,
  },
  accounts: {
    add: addAccount,
    get: getAccount,
    list: listAccounts,
    enable: enableAccount,
    hold: holdAccount,
    release: releaseAccount,
    remove: removeAccount,
    answered: accountAnswered,
    holdProvider,
    releaseProvider,
    providerHolds,
  },
  prompts: { put: putPrompt, get: getPrompt, collect: collectPrompts },
  worktrees: {
    begin: beginWorktree,
    made: madeWorktree,
    looked: lookedWorktree,
    get: getWorktree,
    list: listWorktrees,
    toTidy: worktreesToTidy,
  },
  stuck: { find: findStuck, newest: newestInstant, release: releaseStuck },
  events: { list: listEvents },
  history: { prunable: listPrunable, prune: pruneHistory, page: pageOfHistory, add: addHistory },
  restores: { endLive, standDown },
  things: { resolve, offer },
};

/** The operations keep what the port promises; does not compile where they do not. */
export const asStore = (store: StoreOf<typeof operations>): Store => store;

/** The same store; names each change that is asked for, right after it was: what is asked for in that turn shares its commit. */
export const tellingStore = (store: Store, onChange: (name: string) => void): Store => {
  const nouns = store as unknown as Record<string, Record<string, (input: unknown) => Promise<unknown>>>;
  return storeOf(operations, ({ name, access }, input) => {
    const [noun = "", verb = ""] = name.split(".");
    const answer = nouns[noun]?.[verb]?.(input);
    ensure(answer, `the store has ${name}`);
    if (access === "write") onChange(name);
    return answer;
  });
};
