/** What a store answers before anything was put in: reading before the first change finds nothing, and makes nothing. */
import { ensure } from "../core/errors.ts";
import type { Store } from "../core/ports.ts";

const noChange = (): never => {
  ensure(false, "a store that is not there is only read");
  throw new Error("unreachable");
};
const none = async () => ({ items: [], next: null });

export const emptyStore: Store = {
  hosts: { join: noChange, report: noChange, renew: noChange, leave: noChange, list: async () => [] },
  loops: {
    add: noChange,
    addPaused: noChange,
    edit: noChange,
    rename: noChange,
    pause: noChange,
    resume: noChange,
    archive: noChange,
    unarchive: noChange,
    remove: noChange,
    get: async () => null,
    list: none,
    planDue: noChange,
    runNow: noChange,
    nextFires: async () => [],
    preview: async () => null,
  },
  declared: {
    loops: async () => [],
    owned: async () => [],
    rest: async () => ({ accounts: [], limits: [] }),
    apply: noChange,
  },
  slots: { list: none, missed: async () => [] },
  runs: {
    add: noChange,
    retry: noChange,
    cancel: noChange,
    get: async () => null,
    list: none,
    beforeTurn: async () => [],
    durationsLike: async () => [],
    counts: async () => ({ running: 0, queued: 0, waiting: 0, forPerson: 0 }),
    hooksDue: async () => [],
    hooksDone: noChange,
  },
  steps: { wake: noChange, toJudge: async () => [], ended: async () => [], judge: noChange },
  definitions: { put: noChange },
  admission: {
    pass: noChange,
    explain: async () => null,
    setLimit: noChange,
    removeLimit: noChange,
    usage: async () => [],
  },
  attempts: {
    ofHost: async () => [],
    start: noChange,
    session: noChange,
    run: noChange,
    adopt: noChange,
    ending: noChange,
    settle: noChange,
    toEnd: async () => [],
    takeOver: noChange,
    endedAmong: async () => [],
    among: async () => [],
  },
  accounts: {
    add: noChange,
    get: async () => null,
    list: async () => [],
    enable: noChange,
    hold: noChange,
    release: noChange,
    remove: noChange,
    answered: noChange,
    holdProvider: noChange,
    releaseProvider: noChange,
    providerHolds: async () => [],
  },
  prompts: { put: noChange, get: async () => null, collect: noChange },
  worktrees: {
    begin: noChange,
    made: noChange,
    looked: noChange,
    get: async () => null,
    list: none,
    toTidy: async () => [],
  },
  stuck: { find: async () => [], newest: async () => null, release: noChange },
  events: { list: async () => ({ items: [], cursor: null }) },
  history: {
    prunable: async () => ({ runs: 0, kept: 0, next: null }),
    prune: noChange,
    page: async () => ({ items: [], next: null }),
    add: noChange,
  },
  restores: { endLive: noChange, standDown: noChange },
  things: { resolve: async () => [], offer: async () => [] },
};
