/** What `drover help TOPIC` and the man page say beside the commands: what somebody asks in the first week. */
import { EXIT_MEANINGS } from "./exits.ts";

/** A paragraph, or lines of a word and what it means. */
export type TopicPart = string | readonly (readonly [word: string, meaning: string])[];

export interface Topic {
  readonly name: string;
  readonly summary: string;
  readonly parts: readonly TopicPart[];
}

export const TOPICS: readonly Topic[] = [
  {
    name: "exit-codes",
    summary: "What a command ends with",
    parts: [
      EXIT_MEANINGS.map(([status, meaning]) => [String(status), meaning] as const),
      "1, 7, 8, 124 and 130 tell of a run that a command waits for: `drover run`, `drover retry --wait`, `drover loop run --wait`. With 7 and 8 the run goes on in the daemon.",
      'An error is one line on standard error; with --json it is {"error": {"code", "message", "hint", "path"}} there. Rely on the code and the exit status, not on the message.',
    ],
  },
  {
    name: "times",
    summary: "How durations, times, schedules and sizes are written",
    parts: [
      [
        ["500ms 90s 15m 2h 1d 1w", "durations, and sums of them such as 1h30m; a plain number is refused"],
        ["2026-05-01T02:30", "a time here, or in the zone of --tz; with Z or +02:00 behind it exactly that instant"],
        ["+30m", "from now on"],
        ['"30 2 * * *"', "cron: minute, hour, day of month, month, day of week; six fields begin with seconds"],
        ["10MB 1GiB", "sizes: thousands, or powers of two"],
      ],
      "Quote a cron expression, or the shell fills in file names for the stars. `drover schedule explain EXPR` says it in words, with what changes of the clock do to it; `drover schedule next EXPR` lists the next instants.",
      "With --json times are ISO-8601 in UTC with milliseconds, and durations are milliseconds in keys that end in Ms.",
    ],
  },
  {
    name: "names",
    summary: "How loops, runs and accounts are named",
    parts: [
      "A loop has a name that no other loop has which is not archived. A run has an id such as run_01m8p6zdc1yxkx7jqdg02s8qkn; tables print its last six characters.",
      "Wherever one is asked for, a name, a whole id, its beginning or its end will do, at least four characters of it. What may mean several things is refused with 4, and they are listed.",
      [
        ["LOOP@TIME", "a scheduled instant of a loop, for `drover why`"],
        ["PROVIDER:NAME", "an account: claude:work. claude:default is your own login"],
      ],
      "The Tab key offers them: `drover completion --help`.",
    ],
  },
  {
    name: "environment",
    summary: "Variables that drover reads, and those that it gives to what it runs",
    parts: [
      "It reads:",
      [
        ["DROVER_HOME", "one folder for everything: configuration, state and socket"],
        ["DROVER_STORE", "the store: sqlite:FILE or postgres://...; wins over `store` in config.yaml"],
        [
          "HOME, XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR",
          "where these lie without DROVER_HOME; `drover config path` prints it",
        ],
        ["PATH", "where commands and agents are looked for, completed by the usual folders of your host"],
        ["TZ", "the zone of this host, for schedules without --tz"],
        ["USER, LOGNAME, TMPDIR, XDG_DATA_HOME", "who you are, and where units lie, for `drover import`"],
        ["DROVER_SERVICE", "set in drover's own service: its name"],
        ["NO_COLOR, FORCE_COLOR, TERM, CI", "whether colours and redrawn lines are wanted"],
        ["VISUAL, EDITOR", "what `drover loop edit` opens a loop in"],
      ],
      "Each process of a run is given:",
      [
        ["DROVER_RUN_ID", "its run"],
        ["DROVER_STEP, DROVER_ATTEMPT, DROVER_ATTEMPT_ID", "the step, the number of the try, and its id"],
        ["DROVER_LOOP, DROVER_SLOT", "the loop and the scheduled instant; empty without one"],
        ["DROVER_DEPTH", "how deep it is: a run that a run started is at 1"],
        ["DROVER_PERMISSION", "for a custom agent: what it may do"],
        ["DROVER_RUN_STATUS", "for --on-finish and --on-failure: how the run ended"],
        ["DROVER_OUTPUT", "a file: what is written there as JSON is the step's output"],
        ["DROVER_RUN_TOKEN, DROVER_SOCKET", "what a `drover` in it shows and asks, so that its runs count as its own"],
      ],
      "A command gets a short list of your variables and no others: pass more with --env, --env-pass and --secret.",
    ],
  },
  {
    name: "json",
    summary: "How scripts use drover",
    parts: [
      'Every command takes --json: one document on standard output and nothing else. A list is {"items": [...], "next": null or a cursor}; give the cursor back with --cursor. What is followed (`logs -f`, `events -f`) is one document a line.',
      "Keys are only ever added. Names, flags and exit statuses stay.",
      "Nothing asks a question unless standard input is a terminal; --yes answers it.",
      "After --, everything belongs to the command that is run.",
    ],
  },
];
