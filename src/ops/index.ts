/** Every operation in one line: its name, where it runs, what it does, and how it is loaded. Nothing here may load more. */
import type { AnyOperation, Where } from "./operation.ts";

export interface Entry {
  /** The words of its command, joined by dots; also the end of its HTTP path. */
  readonly name: string;
  readonly where: Where;
  readonly summary: string;
  readonly load: () => Promise<{ readonly operation: AnyOperation }>;
  /** Part of the daemon's own machinery: served, not a command. */
  readonly hidden?: true;
}

export const operations: readonly Entry[] = [
  {
    name: "up",
    where: "local",
    summary: "Start the daemon, and return when it is ready",
    load: () => import("./daemon/daemon-up.ts"),
  },
  {
    name: "down",
    where: "local",
    summary: "Stop the daemon; running attempts go on without it unless told otherwise",
    load: () => import("./daemon/daemon-down.ts"),
  },
  {
    name: "status",
    where: "local",
    summary: "Show the daemon, the store, what runs and what fires next",
    load: () => import("./daemon/show-status.ts"),
  },
  {
    name: "doctor",
    where: "local",
    summary:
      "Look for what is wrong or left over, each with a code and the command that mends it; ends with 1 on findings",
    load: () => import("./doctor/doctor.ts"),
  },
  {
    name: "daemon.install",
    where: "local",
    summary: "Install the daemon as a service of yours: systemd on Linux, launchd on macOS",
    load: () => import("./daemon/install-service.ts"),
  },
  {
    name: "daemon.uninstall",
    where: "local",
    summary: "Stop the service and remove it; runs go on",
    load: () => import("./daemon/uninstall-service.ts"),
  },
  {
    name: "daemon.logs",
    where: "local",
    summary: "Print the daemon's own log, also what was put aside when it grew",
    load: () => import("./daemon/read-daemon-log.ts"),
  },
  {
    name: "daemon.status",
    where: "local",
    summary: "Show the service that starts the daemon: installed, enabled, active, and whether its paths are right",
    load: () => import("./daemon/show-service.ts"),
  },
  {
    name: "daemon.stop",
    where: "act",
    summary: "Ask the daemon to go down",
    load: () => import("./daemon/stop-daemon.ts"),
    hidden: true,
  },
  {
    name: "daemon.look",
    where: "act",
    summary: "Say where the daemon finds programs, by its own PATH",
    load: () => import("./doctor/look-around.ts"),
    hidden: true,
  },
  {
    name: "stuck.release",
    where: "write",
    summary: "Let go of what is stuck: claims of attempts that are over, slots that nothing can give an outcome",
    load: () => import("./runs/release-stuck.ts"),
    hidden: true,
  },

  {
    name: "loop.add",
    where: "write",
    summary: "Add a loop: a schedule, what to run, and how",
    load: () => import("./loops/add-loop.ts"),
  },
  { name: "loop.ls", where: "read", summary: "List loops by name", load: () => import("./loops/list-loops.ts") },
  {
    name: "loop.show",
    where: "read",
    summary: "Show a loop: its schedule, next instants and newest slots",
    load: () => import("./loops/show-loop.ts"),
  },
  {
    name: "loop.slots",
    where: "read",
    summary: "List every scheduled instant of a loop with its outcome, newest first",
    load: () => import("./loops/list-slots.ts"),
  },
  {
    name: "loop.run",
    where: "act",
    summary: "Start a loop now; says whether that is a due slot, a retry, or a run of its own",
    load: () => import("./loops/run-loop.ts"),
  },
  {
    name: "loop.edit",
    where: "write",
    summary: "Change a loop; what is not given stays, and nothing that was due before starts",
    load: () => import("./loops/edit-loop.ts"),
  },
  {
    name: "loop.editor",
    where: "local",
    summary: "Open a loop in an editor, and change it to what is saved there",
    load: () => import("./loops/open-editor.ts"),
    hidden: true,
  },
  {
    name: "loop.pause",
    where: "write",
    summary: "Stop a loop from starting runs; those at work go on",
    load: () => import("./loops/pause-loop.ts"),
  },
  {
    name: "loop.resume",
    where: "write",
    summary: "Let a paused, expired or finished loop start runs again",
    load: () => import("./loops/resume-loop.ts"),
  },
  {
    name: "loop.rename",
    where: "write",
    summary: "Give a loop another name; its id, schedule and history stay",
    load: () => import("./loops/rename-loop.ts"),
  },
  {
    name: "loop.archive",
    where: "write",
    summary: "Put a loop away: it starts nothing, and its name is free again",
    load: () => import("./loops/archive-loop.ts"),
  },
  {
    name: "loop.unarchive",
    where: "write",
    summary: "Bring an archived loop back as it was",
    load: () => import("./loops/unarchive-loop.ts"),
  },
  {
    name: "loop.rm",
    where: "write",
    summary: "Delete a loop and its slots; its runs stay",
    load: () => import("./loops/remove-loop.ts"),
  },

  {
    name: "apply",
    where: "local",
    summary: "Make loops, accounts and limits what drover.yaml files say: all of it or nothing",
    load: () => import("./declared/apply-files.ts"),
  },
  {
    name: "declared.apply",
    where: "write",
    summary: "Make the store match what files declare: all of it or nothing",
    load: () => import("./declared/apply-declared.ts"),
    hidden: true,
  },
  {
    name: "declared.check",
    where: "read",
    summary: "Say what this host refuses of what files declare",
    load: () => import("./declared/check-declared.ts"),
    hidden: true,
  },

  {
    name: "workflow.validate",
    where: "local",
    summary: "List every problem of a workflow's file with its line",
    load: () => import("./workflows/validate-workflow.ts"),
  },
  {
    name: "workflow.graph",
    where: "local",
    summary: "Draw the steps of a workflow's file and what they wait for",
    load: () => import("./workflows/graph-workflow.ts"),
  },
  {
    name: "template.ls",
    where: "local",
    summary: "List workflow templates: the built-in ones, and your own in the configuration folder",
    load: () => import("./workflows/list-templates.ts"),
  },
  {
    name: "template.show",
    where: "local",
    summary: "Show a workflow template: what it is for, its variables, its text",
    load: () => import("./workflows/show-template.ts"),
  },
  {
    name: "template.render",
    where: "local",
    summary: "Make a workflow's file of a template; it is checked, and nothing runs",
    load: () => import("./workflows/render-template.ts"),
  },

  {
    name: "schedule.next",
    where: "local",
    summary: "Print the next instants of a cron expression or a duration",
    load: () => import("./loops/next-instants.ts"),
  },
  {
    name: "schedule.explain",
    where: "local",
    summary: "Say a schedule in words, and what changes of the clock do to it",
    load: () => import("./loops/explain-schedule.ts"),
  },

  {
    name: "run",
    where: "act",
    summary: "Run a command, an agent or a workflow now, under the limits, and wait for its end",
    load: () => import("./runs/run-now.ts"),
  },
  { name: "runs", where: "read", summary: "List runs, newest first", load: () => import("./runs/list-runs.ts") },
  {
    name: "show",
    where: "read",
    summary: "Show a run: steps, attempts, places of logs",
    load: () => import("./runs/show-run.ts"),
  },
  {
    name: "manifest",
    where: "read",
    summary: "Print a run's manifest: what was asked, by which definition, on which commit, with which result",
    load: () => import("./runs/print-manifest.ts"),
  },
  { name: "logs", where: "read", summary: "Print what a run put out", load: () => import("./runs/read-logs.ts") },
  {
    name: "cancel",
    where: "write",
    summary: "Cancel a run and all it started; returns when nothing is left of it",
    load: () => import("./runs/cancel-run.ts"),
  },
  {
    name: "retry",
    where: "act",
    summary: "Run the same work again as a new run that points at the old one",
    load: () => import("./runs/retry-run.ts"),
  },
  {
    name: "why",
    where: "read",
    summary: "Say in one sentence why something waits, was skipped, was missed, failed or ran, and what mends it",
    load: () => import("./why/explain-why.ts"),
  },
  { name: "events", where: "read", summary: "Print the change feed", load: () => import("./runs/watch-events.ts") },

  {
    name: "limit.ls",
    where: "read",
    summary: "List caps with what is used of them",
    load: () => import("./limits/list-limits.ts"),
  },
  {
    name: "limit.set",
    where: "write",
    summary: "Set how much of a resource may be used at a time",
    load: () => import("./limits/set-limit.ts"),
  },
  { name: "limit.rm", where: "write", summary: "Take a limit away", load: () => import("./limits/remove-limit.ts") },
  {
    name: "account.add",
    where: "write",
    summary: "Add an account: a login of a provider with a folder of its own",
    load: () => import("./accounts/add-account.ts"),
  },
  {
    name: "account.ls",
    where: "read",
    summary: "List accounts with their limits and holds, your own logins among them",
    load: () => import("./accounts/list-accounts.ts"),
  },
  {
    name: "account.show",
    where: "read",
    summary: "Show an account: its folder, limits, holds and what runs under it",
    load: () => import("./accounts/show-account.ts"),
  },
  {
    name: "account.enable",
    where: "write",
    summary: "Let an account take work again",
    load: () => import("./accounts/enable-account.ts"),
  },
  {
    name: "account.disable",
    where: "write",
    summary: "Take an account out: nothing starts under it; what runs goes on",
    load: () => import("./accounts/disable-account.ts"),
  },
  {
    name: "account.hold",
    where: "write",
    summary: "Keep an account free for a while, or until it is released; what runs goes on",
    load: () => import("./accounts/hold-account.ts"),
  },
  {
    name: "account.release",
    where: "write",
    summary: "End every hold of an account, forget its limits, and wake what waits for it",
    load: () => import("./accounts/release-account.ts"),
  },
  {
    name: "account.rm",
    where: "write",
    summary: "Forget an account; its folder with the login stays",
    load: () => import("./accounts/remove-account.ts"),
  },
  {
    name: "account.login",
    where: "local",
    summary: "Start the provider's own login for an account, on this terminal",
    load: () => import("./accounts/login-account.ts"),
  },
  {
    name: "agent.ls",
    where: "local",
    summary: "List agents: what is installed, which version, what it can do, whether it is logged in",
    load: () => import("./accounts/list-agents.ts"),
  },
  {
    name: "agent.hold",
    where: "write",
    summary: "Keep all accounts of a provider free for a while, or until it is released; what runs goes on",
    load: () => import("./accounts/hold-agent.ts"),
  },
  {
    name: "agent.release",
    where: "write",
    summary: "End the hold of a provider; holds of its single accounts stay",
    load: () => import("./accounts/release-agent.ts"),
  },

  {
    name: "worktree.ls",
    where: "read",
    summary: "List worktrees that are there, with what they hold",
    load: () => import("./worktrees/list-worktrees.ts"),
  },
  {
    name: "worktree.rm",
    where: "write",
    summary: "Remove the worktree of an ended run; refused while it holds work",
    load: () => import("./worktrees/remove-worktree.ts"),
  },
  {
    name: "worktree.handoff",
    where: "local",
    summary: "Hand the branch of an ended run over: push it, and open a pull request, each once",
    load: () => import("./worktrees/hand-off.ts"),
  },
  {
    name: "worktree.prune",
    where: "write",
    summary: "Look at every worktree of this host, also those without a record, and remove what holds nothing",
    load: () => import("./worktrees/prune-worktrees.ts"),
  },
  {
    name: "import.crontab",
    where: "local",
    summary: "Make paused loops of a crontab, and say of each line what was understood",
    load: () => import("./imports/import-crontab.ts"),
  },
  {
    name: "import.systemd",
    where: "local",
    summary: "Make paused loops of systemd's timers, and say of each trigger what was understood",
    load: () => import("./imports/import-systemd.ts"),
  },
  {
    name: "import.loops",
    where: "write",
    summary: "Make the loops of an import, paused: all or none",
    load: () => import("./imports/import-loops.ts"),
    hidden: true,
  },
  {
    name: "backup",
    where: "local",
    summary: "Copy the store, daemon or not; the copy is read from end to end before it counts",
    load: () => import("./data/back-up.ts"),
  },
  {
    name: "restore",
    where: "local",
    summary: "Put a backup in the place of the store; starts nothing, and keeps what was there",
    load: () => import("./data/restore-backup.ts"),
  },
  {
    name: "export",
    where: "read",
    summary: "Write loops, accounts and limits into a bundle for another machine, without any secret",
    load: () => import("./data/export-bundle.ts"),
  },
  {
    name: "import.bundle",
    where: "local",
    summary: "Take in a bundle: its loops arrive paused, and what is here is not touched unless told",
    load: () => import("./data/import-bundle.ts"),
  },
  {
    name: "import.definitions",
    where: "write",
    summary: "Make the loops, accounts and limits of a bundle: all or none",
    load: () => import("./data/import-definitions.ts"),
    hidden: true,
  },
  {
    name: "import.history",
    where: "write",
    summary: "Take in ended runs of a bundle; what is here already stays",
    load: () => import("./data/import-history.ts"),
    hidden: true,
  },
  {
    name: "gc",
    where: "write",
    summary: "Remove what is past its time: ended runs, logs, prompts, what was left half written",
    load: () => import("./data/collect-garbage.ts"),
  },
  {
    name: "config.path",
    where: "local",
    summary: "Print where configuration, state, logs and the socket are",
    load: () => import("./config/config-path.ts"),
  },
  {
    name: "config.show",
    where: "local",
    summary: "Print every setting with its source",
    load: () => import("./config/config-show.ts"),
  },
  {
    name: "config.check",
    where: "local",
    summary: "List every problem of the configuration with its line",
    load: () => import("./config/config-check.ts"),
  },
  {
    name: "config.schema",
    where: "local",
    summary: "Print the JSON Schema of drover.yaml, of a workflow or of config.yaml, for editors",
    load: () => import("./config/config-schema.ts"),
  },
  { name: "version", where: "local", summary: "Print the version", load: () => import("./daemon/show-version.ts") },
  {
    name: "completion",
    where: "local",
    summary: "Print a completion script for a shell",
    load: () => import("./print-completion.ts"),
  },
];

export const findEntry = (name: string): Entry | undefined => operations.find((entry) => entry.name === name);
