/** Every finding of `doctor`, on one page: the reference, the checks and their tests are held against this table. */

import type { ServiceCode } from "../daemon/service-state.ts";

/** `problem`: something does not work. `warning`: something will not, or is left over. `note`: worth knowing, nothing to do now. */
export type FindingLevel = "problem" | "warning" | "note";

export interface FindingKind {
  /** The check that finds it. */
  readonly check: string;
  readonly level: FindingLevel;
  /** What it means, in a sentence. */
  readonly says: string;
  /** What mends it. */
  readonly mend: string;
  /** `doctor --fix` can mend it, where it can be proved that nothing is lost. */
  readonly fixable?: true;
}

export const findingKinds = {
  config_invalid: {
    check: "config",
    level: "problem",
    says: "A value in `config.yaml` cannot be used, so no command but `doctor` and `config` works.",
    mend: "Mend the line that is named; `drover config check` lists them all.",
  },
  config_doubtful: {
    check: "config",
    level: "warning",
    says: "`config.yaml` holds something that no setting is named after.",
    mend: "Take the line out, or correct its name.",
  },

  folder_open: {
    check: "folders",
    level: "warning",
    says: "Other users of this machine can look into a folder that holds outputs and keys.",
    mend: "`chmod 700` on the folder.",
    fixable: true,
  },
  file_unwritable: {
    check: "folders",
    level: "problem",
    says: "A file or folder that drover writes cannot be written: wrong owner, wrong rights, or a read-only file system.",
    mend: "The command that is named with it.",
  },

  store_unusable: {
    check: "store",
    level: "problem",
    says: "The store cannot be opened: it is no store, it is away, or it may not be read.",
    mend: "What the sentence says; a file that is not ours is left as it is.",
  },
  store_damaged: {
    check: "store",
    level: "problem",
    says: "The store's file is damaged.",
    mend: "`drover down`, keep the damaged file, and put the newest backup in its place.",
  },
  store_newer: {
    check: "store",
    level: "problem",
    says: "A newer version of drover has opened this store, and this one cannot read it.",
    mend: "Use the newer version.",
  },
  store_older: {
    check: "store",
    level: "note",
    says: "The store was last written by an older version; the next daemon brings it up to date, with a copy first.",
    mend: "`drover up`.",
  },
  store_not_checked: {
    check: "store",
    level: "note",
    says: "Looking at every page of the store took longer than `limits.doctorStoreMs`, so a part was not checked.",
    mend: "`drover doctor --json` with a larger `limits.doctorStoreMs`, when there is time.",
  },

  daemon_silent: {
    check: "daemon",
    level: "problem",
    says: "A daemon holds the lock and does not answer: it is stopped, stuck, or just starting.",
    mend: "Look at its log, then end the process that is named; what runs is not harmed.",
  },
  lock_held_elsewhere: {
    check: "daemon",
    level: "problem",
    says: "Something holds the lock that is no daemon of this machine, as where two machines share a folder.",
    mend: "Find who holds the file that is named, and give each machine a state folder of its own.",
  },
  daemon_other_build: {
    check: "daemon",
    level: "warning",
    says: "The daemon is another build than this command.",
    mend: "`drover down && drover up`; what runs goes on.",
  },
  daemon_missing: {
    check: "daemon",
    level: "warning",
    says: "No daemon is up, and loops or runs wait for one.",
    mend: "`drover up`.",
  },

  service_program_moved: {
    check: "service",
    level: "problem",
    says: "The service starts a Node or a drover that is not there any more.",
    mend: "`drover daemon install --enable`.",
  },
  service_failed: {
    check: "service",
    level: "problem",
    says: "The service has failed, or is started again and again.",
    mend: "`journalctl --user --unit drover` has what it said; then `drover daemon install --enable`.",
  },
  service_foreign: {
    check: "service",
    level: "warning",
    says: "The service's file was not written by drover.",
    mend: "`drover daemon install --enable --replace`.",
  },
  service_stale: {
    check: "service",
    level: "warning",
    says: "The service's file was changed, and the manager has not read it.",
    mend: "`systemctl --user daemon-reload`.",
  },
  service_other_program: {
    check: "service",
    level: "warning",
    says: "The service starts another installation than this one.",
    mend: "`drover daemon install --enable`.",
  },
  service_other_store: {
    check: "service",
    level: "warning",
    says: "The service's daemon has another store than this command.",
    mend: "`drover daemon install --enable`.",
  },
  service_beside: {
    check: "service",
    level: "warning",
    says: "A daemon is up that the service did not start.",
    mend: "`drover down && drover up`.",
  },
  service_stopped: {
    check: "service",
    level: "warning",
    says: "The service is installed and enabled, and does not run.",
    mend: "`drover up`.",
  },
  service_unreachable: {
    check: "service",
    level: "warning",
    says: "The service manager cannot be asked.",
    mend: "`loginctl enable-linger`, or ask from a session of yours.",
  },
  service_not_enabled: {
    check: "service",
    level: "note",
    says: "The service is installed, and does not start by itself.",
    mend: "`drover daemon install --enable`.",
  },
  service_path_differs: {
    check: "service",
    level: "note",
    says: "The service's `PATH` lacks folders that yours has.",
    mend: "`drover daemon install --enable`.",
  },
  service_edited: {
    check: "service",
    level: "note",
    says: "The service's file was changed by hand.",
    mend: "`systemctl --user edit` for changes that stay; `drover daemon install --enable --replace` for it as it was.",
  },
  service_outdated: {
    check: "service",
    level: "note",
    says: "The service's file is not what this version writes.",
    mend: "`drover daemon install --enable`.",
  },
  service_linger_off: {
    check: "service",
    level: "note",
    says: "The service ends with this user's last session.",
    mend: "`loginctl enable-linger`.",
  },

  clock_wrong: {
    check: "clock",
    level: "problem",
    says: "The clock says a time that cannot be.",
    mend: "Set the clock; slots would be recorded at wrong times.",
  },
  clock_behind: {
    check: "clock",
    level: "warning",
    says: "The store has seen times ahead of this clock: it was set back, or another host's is fast.",
    mend: "Set the clock. Nothing fires twice meanwhile.",
  },
  clock_unsynchronised: {
    check: "clock",
    level: "warning",
    says: "The system says that its clock is not synchronised.",
    mend: "`sudo timedatectl set-ntp true`.",
  },
  clock_stepped: {
    check: "clock",
    level: "note",
    says: "The daemon saw the clock jump within the last day.",
    mend: "Nothing; instants that it skipped are recorded with `clock_step`.",
  },
  host_slept: {
    check: "clock",
    level: "note",
    says: "The daemon saw this machine sleep within the last day.",
    mend: "Nothing; instants that it missed are recorded with `asleep`.",
  },

  disk_short: {
    check: "disk",
    level: "problem",
    says: "Less disk space is free than `limits.minFreeBytes`: nothing starts.",
    mend: "Free some space, or lower `limits.minFreeBytes`.",
  },
  inodes_short: {
    check: "disk",
    level: "problem",
    says: "The file system has hardly room for more files, whatever space is free.",
    mend: "Remove small files, or move the state folder.",
  },

  shell_missing: {
    check: "path",
    level: "problem",
    says: "There is no `sh` in the system's folders, and every process is started through it.",
    mend: "Install it.",
  },
  tool_missing: {
    check: "path",
    level: "warning",
    says: "A tool of the system that drover uses where it is there is not found.",
    mend: "Install it, or live without what is named.",
  },
  program_missing: {
    check: "path",
    level: "warning",
    says: "The command of an active loop is not found, neither by you nor by the daemon.",
    mend: "Install it, or give the loop another command with `drover loop edit`.",
  },
  daemon_lacks_program: {
    check: "path",
    level: "problem",
    says: "The command of an active loop, or an agent, is found on your `PATH` but not on the daemon's.",
    mend: "`drover down && drover up` from a shell that finds it; under a service, install that again.",
  },
  loop_folder_missing: {
    check: "path",
    level: "warning",
    says: "The folder in which an active loop works is not there.",
    mend: "Make it, or name another with `drover loop edit --cwd`.",
  },

  open_files_low: {
    check: "limits",
    level: "warning",
    says: "The limit of open files is too low for as many runs as `caps` allow.",
    mend: "Raise it (`ulimit -n`, or `LimitNOFILE=` of the service), or lower `caps.commands`.",
  },
  processes_low: {
    check: "limits",
    level: "warning",
    says: "The limit of processes is too low for as many runs as `caps` allow.",
    mend: "Raise it (`ulimit -u`, `TasksMax=` of the service, or pids.max of the cgroup), or lower `caps.commands`.",
  },
  watch_limit_low: {
    check: "limits",
    level: "warning",
    says: "The system allows so few file watchers that the daemon learns of ends only by looking around.",
    mend: "`sudo sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536`.",
  },

  agent_missing: {
    check: "agents",
    level: "problem",
    says: "An agent's command line is not found, and an account or an active loop needs it.",
    mend: "Install it, as named.",
  },
  agent_broken: {
    check: "agents",
    level: "problem",
    says: "An agent's command line is there and does not say its version.",
    mend: "Install it again.",
  },
  agent_untested: {
    check: "agents",
    level: "warning",
    says: "An agent's version is outside of the range that was tried.",
    mend: "Install one that was tried, or start it with `--untested`.",
  },
  login_missing: {
    check: "agents",
    level: "warning",
    says: "An account that was added is not logged in.",
    mend: "`drover account login ACCOUNT`.",
  },

  account_folder: {
    check: "accounts",
    level: "problem",
    says: "An account's folder is gone, open to others, or not its own.",
    mend: "The command that is named; `--fix` makes it, or takes the rights away.",
    fixable: true,
  },
  account_held: {
    check: "accounts",
    level: "warning",
    says: "An account takes no work until a person releases it.",
    mend: "Mend the cause, then `drover account release ACCOUNT`.",
  },
  provider_held: {
    check: "accounts",
    level: "warning",
    says: "No account of a provider takes work until a person releases it.",
    mend: "`drover agent release PROVIDER`.",
  },

  process_left: {
    check: "processes",
    level: "warning",
    says: "A process of an attempt that has ended still lives.",
    mend: "`drover doctor --fix` ends it, after it has looked again that it is that process.",
    fixable: true,
  },

  worktree_stray: {
    check: "worktrees",
    level: "warning",
    says: "A worktree below our folder is of no run that is known.",
    mend: "`drover worktree prune` removes it where it holds nothing; else look at it.",
    fixable: true,
  },
  worktree_gone: {
    check: "worktrees",
    level: "warning",
    says: "The folder of a worktree was removed by somebody else.",
    mend: "`drover worktree prune` takes it off the list, and keeps what its branch holds.",
    fixable: true,
  },
  worktree_making: {
    check: "worktrees",
    level: "warning",
    says: "A worktree has been in the making for over an hour, and nobody works on it.",
    mend: "`drover worktree prune`, or `drover cancel RUN`.",
    fixable: true,
  },
  worktree_locked: {
    check: "worktrees",
    level: "warning",
    says: "Git left a lock in a worktree over ten minutes ago: every git in it fails.",
    mend: "When no git works in it, remove the file that is named.",
  },
  worktree_half_removed: {
    check: "worktrees",
    level: "note",
    says: "A worktree was on its way out when its daemon died.",
    mend: "The next `drover up` puts it back or removes it.",
    fixable: true,
  },

  host_silent: {
    check: "stuck",
    level: "warning",
    says: "A host of this store has been silent for long, and runs or loops are bound to it.",
    mend: "Start its daemon; or cancel those runs, and move the loops.",
  },

  logs_overdue: {
    check: "growth",
    level: "warning",
    says: "Folders of attempts are older than `limits.logRetentionMs` and were not removed.",
    mend: "`drover gc`; a daemon that is up does it by itself, and its log says why when it cannot.",
  },
  log_folder_stray: {
    check: "growth",
    level: "note",
    says: "Folders of attempts that no store knows lie in the runs folder.",
    mend: "They are of another store, or of one that was replaced: `drover gc` when they are not missed.",
  },
  history_overdue: {
    check: "growth",
    level: "note",
    says: "Runs that ended before `limits.retentionMs` were not removed, as in the first hours after an upgrade.",
    mend: "`drover gc`; a daemon that is up does it by itself, a part at a time.",
  },
  wal_large: {
    check: "growth",
    level: "warning",
    says: "The store's write-ahead log is large: something has kept it from being written back for long.",
    mend: "End whatever reads the store for hours (`drover events -f`, `sqlite3`), or `drover down && drover up`.",
  },
  store_large: {
    check: "growth",
    level: "note",
    says: "The store's file is large.",
    mend: "Nothing; every answer stays as fast.",
  },

  step_stuck: {
    check: "stuck",
    level: "problem",
    says: "A step waits for something that can never come.",
    mend: "`drover cancel RUN`, then `drover retry RUN`.",
  },
  step_overdue: {
    check: "stuck",
    level: "problem",
    says: "A step should have been woken over ten minutes ago, and a daemon is up.",
    mend: "`drover down && drover up`; report it with the daemon's log.",
  },
  run_stuck: {
    check: "stuck",
    level: "problem",
    says: "A run is not over, and none of its steps is at work or waits.",
    mend: "`drover cancel RUN`, then `drover retry RUN`.",
  },
  turn_stuck: {
    check: "stuck",
    level: "problem",
    says: "A run waits for its turn, and no earlier run of its loop is there to end.",
    mend: "`drover cancel RUN`, then `drover retry RUN`.",
  },
  attempt_ending: {
    check: "stuck",
    level: "warning",
    says: "An attempt has been ending for over ten minutes: some process of it does not go.",
    mend: "`drover show RUN`, and look at the process: another user's, or stuck in the kernel.",
  },
  attempt_host_gone: {
    check: "stuck",
    level: "warning",
    says: "An attempt is at work on a host that has not been heard of for long.",
    mend: "Start that host's daemon; it says what became of it. Else `drover cancel RUN`.",
  },
  claim_stuck: {
    check: "stuck",
    level: "warning",
    says: "A unit of a cap is held by an attempt that is over, so fewer runs start than the cap allows.",
    mend: "`drover doctor --fix` gives it back.",
    fixable: true,
  },
  loop_asleep: {
    check: "stuck",
    level: "problem",
    says: "A loop is active, and nothing will ever wake it.",
    mend: "`drover loop pause LOOP && drover loop resume LOOP`.",
    fixable: true,
  },
  slot_open: {
    check: "stuck",
    level: "warning",
    says: "A slot has no outcome, and no run is left that could give it one.",
    mend: "`drover doctor --fix` records what is known of it.",
    fixable: true,
  },
  account_absent: {
    check: "stuck",
    level: "problem",
    says: "A run waits for an account that does not exist.",
    mend: "`drover account add`, or `drover cancel RUN`.",
  },

  backup_missing: {
    check: "backups",
    level: "note",
    says: "There is no backup of this store, or the newest one is older than a week.",
    mend: "`drover backup`.",
  },
  store_replaced: {
    check: "backups",
    level: "note",
    says: "A store that was replaced by a restore is still there.",
    mend: "`drover gc --replaced` when nothing in it is missed.",
  },

  self_test_failed: {
    check: "self-test",
    level: "problem",
    says: "A run of one second through the daemon did not go as it should.",
    mend: "What the sentence says; the run that is named has its output.",
  },
  check_failed: {
    check: "any",
    level: "warning",
    says: "A check could not be made, or did not end in its time (`limits.doctorCheckMs`).",
    mend: "What the sentence says; the other checks stand.",
  },
  not_looked_at: {
    check: "any",
    level: "note",
    says: "A check was left out, because what it needs cannot be read.",
    mend: "Mend what is said above, then ask again.",
  },
} as const satisfies Readonly<Record<string, FindingKind>> & { readonly [code in ServiceCode]: FindingKind };

export type FindingCode = keyof typeof findingKinds;
