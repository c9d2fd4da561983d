/** Which view shows an operation's answer to people, each loaded when it is needed. An operation without one is shown as JSON. */
import type { Screen } from "../screen.ts";

/** Foreign text in it has been made inert. */
export type View = (answer: never, screen: Screen) => string;

const loops = () => import("./loops.ts");
const runs = () => import("./runs.ts");
const daemon = () => import("./daemon.ts");
const service = () => import("./service.ts");
const accounts = () => import("./accounts.ts");
const data = () => import("./data.ts");

const declared = () => import("./declared.ts");

/** Views of the items of what is followed; one without is text that comes in pieces. */
export const itemViews: { readonly [operation: string]: () => Promise<View> } = {
  events: async () => (await runs()).eventLine,
  apply: async () => (await declared()).applyRound,
  "daemon.logs": async () => (await service()).logLine,
};

export const views: { readonly [operation: string]: () => Promise<View> } = {
  up: async () => (await daemon()).up,
  down: async () => (await daemon()).down,
  status: async () => (await daemon()).statusPage,
  "daemon.install": async () => (await service()).installed,
  "daemon.uninstall": async () => (await service()).uninstalled,
  "daemon.logs": async () => (await service()).logLines,
  "daemon.status": async () => (await service()).serviceStatus,
  doctor: async () => (await daemon()).findings,
  apply: async () => (await declared()).applied,
  "loop.add": async () => (await loops()).loopCard,
  "loop.ls": async () => (await loops()).loopTable,
  "loop.show": async () => (await loops()).loopPage,
  "loop.slots": async () => (await loops()).slotTable,
  "loop.run": async () => (await runs()).loopStarted,
  "loop.editor": async () => (await loops()).loopCard,
  "loop.edit": async () => (await loops()).loopCard,
  "loop.pause": async () => (await loops()).loopCard,
  "loop.resume": async () => (await loops()).loopCard,
  "loop.rename": async () => (await loops()).loopCard,
  "loop.archive": async () => (await loops()).loopCard,
  "loop.unarchive": async () => (await loops()).loopCard,
  "loop.rm": async () => (await loops()).removed,
  "workflow.validate": async () => (await import("./workflows.ts")).validated,
  "workflow.graph": async () => (await import("./workflows.ts")).graph,
  "template.ls": async () => (await import("./workflows.ts")).templates,
  "template.show": async () => (await import("./workflows.ts")).template,
  "template.render": async () => (await import("./workflows.ts")).rendered,
  "schedule.next": async () => (await loops()).instants,
  "schedule.explain": async () => (await loops()).explained,
  run: async () => (await runs()).runStarted,
  runs: async () => (await runs()).runTable,
  show: async () => (await runs()).runPage,
  retry: async () => (await runs()).runStarted,
  cancel: async () => (await runs()).cancelled,
  why: async () => (await runs()).why,
  events: async () => (await runs()).eventList,
  "limit.set": async () => (await accounts()).limitSet,
  "limit.rm": async () => (await accounts()).limitRemoved,
  "account.add": async () => (await accounts()).accountPage,
  "account.ls": async () => (await accounts()).accountTable,
  "account.show": async () => (await accounts()).accountPage,
  "account.enable": async () => (await accounts()).enabled,
  "account.disable": async () => (await accounts()).accountPage,
  "account.hold": async () => (await accounts()).accountPage,
  "account.release": async () => (await accounts()).released,
  "account.rm": async () => (await accounts()).removedAccount,
  "account.login": async () => (await accounts()).login,
  "agent.ls": async () => (await accounts()).agentTable,
  "agent.hold": async () => (await accounts()).providerHeld,
  "agent.release": async () => (await accounts()).providerReleased,
  "worktree.ls": async () => (await accounts()).treeTable,
  "worktree.rm": async () => (await accounts()).treeRemoved,
  "worktree.handoff": async () => (await accounts()).handedOff,
  "worktree.prune": async () => (await accounts()).pruned,
  "import.systemd": async () => (await import("./imports.ts")).imported,
  "import.crontab": async () => (await import("./imports.ts")).imported,
  "limit.ls": async () => (await daemon()).limits,
  backup: async () => (await data()).backedUp,
  restore: async () => (await data()).restored,
  "import.bundle": async () => (await data()).imported,
  gc: async () => (await data()).collected,
  "config.path": async () => (await daemon()).places,
  "config.show": async () => (await daemon()).settings,
  "config.check": async () => (await daemon()).problems,
  version: async () => (await daemon()).version,
  completion: async () => (await daemon()).completion,
};
