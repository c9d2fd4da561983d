/**
 * Rows that are looked through for one page of a list where a filter has no index of its own. A page may then hold fewer
 * rows than were asked for, or none, and still have a next one. No setting: the cursor goes on from there.
 */
export const WALK = 2_000;

/** Longest output of a run that a list of runs holds; `show` has every one whole. No setting: scripts rely on it. */
export const LISTED_OUTPUT_BYTES = 4_096;

/**
 * Every limit that is not part of a loop's policy, with its default. `config.yaml` may set each under the same name;
 * `drover config show` prints where a value comes from. Milliseconds and bytes are in the names.
 */
export const defaultLimits = {
  /** How long an attempt and a host may be silent before their lease is over. */
  leaseMs: 60_000,
  renewMs: 15_000,
  /** Silence of a host after its lease, after which another host takes its work over. */
  takeoverMs: 600_000,
  /** An instant noticed at most this late is on time (or one period of the schedule, if shorter). */
  onTimeMs: 60_000,
  /** Longest sleep of the engine: each wake-up compares the clocks. */
  longestSleepMs: 30_000,
  /** A wall clock that moved this much more or less than the time awake was stepped. */
  clockStepMs: 2_000,
  /** How often live attempts are looked at when nothing rings: dead shims, sizes, time limits. */
  watchMs: 5_000,
  /** An attempt handed to the spawner without a sign of life for this long is decided by a tombstone. */
  askPatienceMs: 5_000,
  /** First pause after an end that used up no try, doubling up to `uncountedBackoffCapMs`. */
  uncountedBackoffMs: 1_000,
  uncountedBackoffCapMs: 300_000,
  /** Longest pause between tries. */
  backoffCapMs: 3_600_000,
  /** That many ends in a row before the ticket settle the step `failed(crash_loop)`. */
  crashLoopEnds: 20,
  /** How long an agent's program may be away, as while an update replaces it, before its run fails with `not_found`. */
  programAwayMs: 900_000,
  /** That many losses in a row of attempts that had started, none of them counted as a try, settle it so too. */
  lostLoopEnds: 5,
  /** Pause of a dynamic loop whose run does not say when the next one is. */
  dynamicGapMs: 60_000,
  /** Attempts of commands, and of agents, at work on one host at a time; `agentCap` is 2 on fewer than 4 cores. */
  commandCap: 256,
  agentCap: 4,
  /** Starts granted in one admission pass. */
  passGrants: 50,
  /** Loops planned in one transaction. */
  planLoops: 200,
  /** Queued minutes that one point of priority is worth. */
  priorityStepMs: 60_000,
  /** Free space of the state's file system below which nothing starts. */
  minFreeBytes: 1_073_741_824,
  /** While there was room, it is looked for again after this long; a write that finds none is believed at once. */
  diskLookMs: 1_000,
  /** Nesting of runs started by runs, and runs below one run. */
  maxDepth: 3,
  maxDescendants: 50,
  /** End of both outputs kept in the store. */
  tailBytes: 4_096,
  /** Largest output that a run may hand over. */
  outputBytes: 1_048_576,
  /** Time that `down --drain` waits when it is not said. */
  drainMs: 30_000,
  /** Limit of a hook and its whole tree. */
  hookTimeoutMs: 60_000,
  logCapBytes: 67_108_864,
  logHeadBytes: 4_194_304,
  logTailBytes: 16_777_216,
  /** How long ended runs are kept, and how many of a loop are kept however old. */
  retentionMs: 30 * 86_400_000,
  retentionRuns: 20,
  /** Ended runs looked at, and removed, in one transaction, and how often a round through all of them begins. */
  retentionBatch: 100,
  retentionRoundMs: 6 * 3_600_000,
  /** Longest line of a bundle that is taken in. */
  bundleLineBytes: 67_108_864,
  /** Backups of one reason that stay in `backups/`, where a backup is given no name. */
  backupsKept: 5,
  /** Free time of attempts' folders after their run ended. */
  logRetentionMs: 14 * 86_400_000,
  /** How long a prompt is kept after the end of the last run with it; one that a loop names stays. */
  promptRetentionMs: 30 * 86_400_000,
  /** Attempts that are prepared and handed to the spawner at one time; looked at; judged after a start. */
  startsAtOnce: 16,
  looksAtOnce: 50,
  recoverAtOnce: 32,
  /** How long an attempt that has ended waits for others that are being started. */
  startsFirstMs: 500,
  hooksAtOnce: 4,
  /** First look at an attempt after it was handed to the spawner: most short ones have rung by then. */
  firstLookMs: 100,
  /** How often the sizes of an attempt with an idle limit are looked at, so that the limit is exact to about this. */
  idleLookMs: 1_000,
  /** Tries to end a tree of which something stays, before its attempt is settled with what is left said. */
  endTries: 3,
  /** First pause after the store was away, busy or full, doubling up to `storeBackoffCapMs`, with jitter from 0.5 to 1.5. */
  storeBackoffMs: 100,
  storeBackoffCapMs: 10_000,
  /** Waiting steps made ready in one transaction; steps of workflows whose definition is asked at a time. */
  wakeSteps: 200,
  judgeSteps: 200,
  /** How often the folders of ended attempts are looked through, and how many are asked about at a time. */
  janitorMs: 3_600_000,
  janitorBatch: 500,
  /** Longest time of one try of an agent, and its longest silence, where nothing else is said. */
  agentTimeoutMs: 2 * 3_600_000,
  agentIdleTimeoutMs: 900_000,
  /** How often the events of a live agent are read. */
  agentLookMs: 1_000,
  /** How long the next start under an account waits for the session of the one before, where starts come one after another. */
  agentStartMs: 15_000,
  /** From an agent's closing event to the end of its tree, if helpers keep it alive. */
  agentExitMs: 15_000,
  /** How long a provider's own retries may go on without progress. */
  agentTroubleMs: 120_000,
  /** Largest prompt, longest line of events that is parsed whole, and all that a transcript keeps. */
  promptBytes: 16_777_216,
  lineBytes: 262_144,
  transcriptBytes: 16_777_216,
  /** Pause of an account after a throttle, and of a step after an overload, without a stated time; doubles up to the cap. */
  throttleBackoffMs: 60_000,
  throttleBackoffCapMs: 1_800_000,
  /** Pause of an account after a usage limit without a stated reset; doubles up to the cap. */
  quotaWaitMs: 1_800_000,
  quotaWaitCapMs: 5 * 3_600_000,
  /** A stated reset further away than this makes no sense and is not believed. */
  quotaLongestMs: 8 * 86_400_000,
  /** Steps that a manifest lists; characters of a receipt's summary; pieces of its evidence. */
  manifestSteps: 1_000,
  receiptCharacters: 4_096,
  receiptEvidence: 100,
  /** Limit of one call of git; of one that fetches; of one that checks files out. */
  gitMs: 30_000,
  gitFetchMs: 60_000,
  gitCheckoutMs: 600_000,
  /** Limit of one push, and of one call of a program that opens pull requests. */
  gitPushMs: 120_000,
  pullRequestMs: 60_000,
  /** How long a command line may take to say its version or whether it is logged in. */
  agentProbeMs: 20_000,
  /** How long a program of the system may take to answer an import (`crontab -l`), and how much of its answer is read. */
  inquiryMs: 20_000,
  inquiryBytes: 16_777_216,
  /**
   * Beyond this a daemon that was told to go down leaves, whatever is left to do: what runs is adopted by the next one. A
   * service waits longer than that before it kills one.
   */
  shutdownMs: 20_000,
  /** From the end of a daemon that is a service to its next start. */
  serviceRestartMs: 5_000,
  /** Longest wait for one answer of the service manager, which may be waiting for a daemon to go down. */
  serviceCallMs: 90_000,
  /** Size at which the daemon's log begins a new file, and how many older ones stay. */
  daemonLogBytes: 4_194_304,
  daemonLogFiles: 2,
  /** Equal lines of it within this time are one line with their number. */
  daemonLogFoldMs: 60_000,
  /** Longest time of one check of `doctor`, and of its look at every page of the store. */
  doctorCheckMs: 30_000,
  doctorStoreMs: 5_000,
  /** Findings of one kind that `doctor` lists, and live runs that it looks at for what is stuck. */
  doctorShown: 10,
  doctorRuns: 20_000,
  /** What was due, or is being made or ended, for this long is stuck; a host that was silent for this long is gone. */
  doctorStuckMs: 600_000,
  doctorGoneMs: 86_400_000,
  /** Sizes from which `doctor` speaks of the store and of its write-ahead log. */
  doctorStoreBytes: 4 * 1_073_741_824,
  doctorWalBytes: 268_435_456,
  /** Age of the newest backup from which it speaks of that. */
  doctorBackupMs: 7 * 86_400_000,
  /** Largest file that declares loops or a workflow, and all prompts that the files of one `apply` name. */
  declaredBytes: 5_242_880,
  declaredPromptBytes: 12_582_912,
  /** How often `apply --watch` looks at its files where the system tells of no change, and how long it waits for the last of several. */
  declaredLookMs: 2_000,
  declaredSettleMs: 200,
  /** Steps of one workflow, and all that they need of one another, counted pair by pair; its expressions. */
  workflowSteps: 10_000,
  workflowNeeds: 100_000,
  workflowExpressions: 20_000,
  /** Items of one step with foreach. */
  foreachItems: 10_000,
  /** An expression of a workflow: how long it is, its parts and their nesting, and the operations that it may take when it runs. */
  expressionCharacters: 16_384,
  expressionNodes: 1_000,
  expressionDepth: 50,
  expressionWork: 1_000_000,
  /** How long a stop waits for writes under way; what is not written by then is found by the next daemon. */
  stopPatienceMs: 5_000,
} as const;

export type Limits = { readonly [K in keyof typeof defaultLimits]: number };
