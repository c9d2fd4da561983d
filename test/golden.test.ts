/** The contract with scripts: `cli.md`'s commands exist, and no name, flag, default, status or key changes unseen. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { findErrors } from "../scripts/errors.mjs";
import { EXIT_MEANINGS } from "../src/cli/exits.ts";
import { findEntry, operations } from "../src/ops/index.ts";
import { laterCommands } from "../src/ops/later.ts";
import { changesBetween, type Contract, contractOf, sentenceOf, textOfContract } from "./contract.ts";

const golden = join(import.meta.dirname, "golden");
const keptText = (name: string): string => readFileSync(join(golden, `${name}.json`), "utf8");
const kept = (name: string): Contract => JSON.parse(keptText(name)) as Contract;

describe("test/golden holds the contract of each command; `node scripts/reference.mjs` writes it anew", () => {
  test("every command has its file, and every file its command", () => {
    expect(readdirSync(golden).toSorted()).toEqual(operations.map(({ name }) => `${name}.json`).toSorted());
  });

  test("what each command takes and answers is what is written there", async () => {
    const changes: string[] = [];
    for (const entry of operations) {
      const contract = contractOf((await entry.load()).operation, entry.hidden === true);
      const told = changesBetween(kept(entry.name), contract).map(sentenceOf);
      changes.push(...told);
      // What the words do not know is seen all the same.
      if (told.length === 0) expect(keptText(entry.name)).toBe(textOfContract(contract));
    }
    expect(changes).toEqual([]);
  });
});

test("every status that a command may end with has its meaning", () => {
  const known = EXIT_MEANINGS.map(([status]) => status);
  const given = new Set(operations.flatMap(({ name }) => kept(name).exits));
  expect([...given].toSorted((a, b) => a - b)).toEqual(known);
});

describe("the errors of the reference are found in the sources", () => {
  const { codes, puzzles } = findErrors();
  const kinds = (code: string): readonly string[] => [...(codes.get(code)?.keys() ?? [])];

  test("every way to make one is understood", () => {
    expect(puzzles).toEqual([]);
  });

  test("what is not there has one word: the thing, and not_found", () => {
    expect([...codes.keys()].filter((code) => code.startsWith("no_such_"))).toEqual([]);
    const silent = [...codes].filter(
      ([code, all]) =>
        /^(run|loop|attempt|account|limit)_not_found$/.test(code) &&
        !all.get("not_found")?.some(({ hint }) => hint !== undefined && hint !== null),
    );
    expect(silent.map(([code]) => code)).toEqual([]);
  });

  test("each with its code, kind, message and hint, however it is made", () => {
    expect(kinds("name_taken")).toEqual(["conflict"]); // by a function of its file
    expect(kinds("bundle_cut")).toEqual(["invalid"]); // by one of another
    expect(kinds("bad_input")).toEqual(["invalid"]); // by a default
    expect(kinds("run_not_found")).toEqual(["not_found"]); // put together
    expect(kinds("unknown_flag")).toEqual(["invalid"]); // one of two
    expect(codes.get("bad_cursor")?.get("invalid")?.[0]?.hint).toBe("Use `next` of the page before.");
    expect(codes.get("daemon_up")?.get("conflict")?.[0]?.message).toMatch(/^the daemon is up \(pid \.\.\.\)/);
  });
});

describe("a change of a contract is said in words", () => {
  const before = kept("runs");
  const flags = (change: (flags: Record<string, Contract["flags"][string]>) => void): Contract => {
    const changed = { ...before.flags };
    change(changed);
    return { ...before, flags: changed };
  };
  const label = before.flags["--label"] ?? { key: "label", type: "string" };
  const status = before.flags["--status"] ?? { key: "status", type: "choice", choices: [] };
  const answer = (change: (answer: Record<string, string>) => void): Contract => {
    const changed = { ...before.answer };
    change(changed);
    return { ...before, answer: changed };
  };

  test.each<[string, Contract, readonly string[]]>([
    ["nothing", before, []],
    ["a lost flag", flags((all) => delete all["--label"]), ["`runs` lost the flag `--label`: a contract break"]],
    ["a new flag", flags((all) => void (all["--new"] = label)), ["`runs` has a new flag `--new`"]],
    [
      "a new flag that must be given",
      flags((all) => void (all["--new"] = { ...label, required: true })),
      ["`runs` has an obligatory new flag `--new`: a contract break"],
    ],
    [
      "another name in JSON",
      flags((all) => void (all["--label"] = { ...label, key: "tag" })),
      ["`runs` calls the flag `--label` `tag` in JSON, no longer `label`: a contract break"],
    ],
    [
      "another type",
      flags((all) => void (all["--label"] = { ...label, type: "integer" })),
      ["`runs` takes integer for the flag `--label`, no longer string: a contract break"],
    ],
    [
      "another default",
      flags((all) => void (all["--label"] = { ...label, default: "x" })),
      ["`runs` takes x where the flag `--label` is not given, no longer nothing: a contract break"],
    ],
    [
      "a lost and a new choice",
      flags(
        (all) =>
          void (all["--status"] = {
            ...status,
            choices: [...(status.choices ?? []).filter((one) => one !== "queued"), "sleeping"],
          }),
      ),
      [
        "`runs` no longer takes `queued` for the flag `--status`: a contract break",
        "`runs` takes `sleeping` too for the flag `--status`",
      ],
    ],
    [
      "a flag that is refused now",
      flags((all) => void (all["--label"] = { ...label, later: true })),
      ["`runs` refuses the flag `--label` as not available: a contract break"],
    ],
    ["another place", { ...before, arguments: { NAME: label } }, ["`runs` has a new argument `NAME`"]],
    [
      "another exit status",
      { ...before, exits: [0, 1] },
      ["`runs` may end with 1", ...[2, 3, 4, 5, 70].map((one) => `\`runs\` does not end with ${one} any more`)],
    ],
    [
      "another way to run",
      { ...before, where: "act" },
      ["`runs` runs in `act`, no longer in `read`: a contract break"],
    ],
    [
      "a lost key, with what is in it",
      answer((all) => {
        for (const path of Object.keys(all)) if (path.startsWith("items[].worktree")) delete all[path];
      }),
      ["`runs` no longer answers `items[].worktree`: a contract break"],
    ],
    ["a new key", answer((all) => void (all["items[].mood"] = "string")), ["`runs` answers `items[].mood` too"]],
    [
      "a key that may be absent",
      answer((all) => {
        delete all["items[].id"];
        all["items[].id?"] = "string";
      }),
      ["`runs` may leave out `items[].id` of its answer: a contract break"],
    ],
    [
      "another type of a key",
      answer((all) => void (all["items[].id"] = "integer")),
      ["`runs` answers `items[].id` as integer, no longer as string: a contract break"],
    ],
    [
      "one more word for a key of words",
      answer((all) => void (all["items[].status"] += "|sleeping")),
      [
        `\`runs\` answers \`items[].status\` as ${before.answer["items[].status"]}|sleeping, no longer as ${before.answer["items[].status"]}`,
      ],
    ],
    [
      "a key that may be null",
      answer((all) => void (all["items[].status"] += ", or null")),
      [
        `\`runs\` answers \`items[].status\` as ${before.answer["items[].status"]}, or null, no longer as ${before.answer["items[].status"]}: a contract break`,
      ],
    ],
  ])("%s", (_what, now, sentences) => {
    expect(changesBetween(before, now).map(sentenceOf)).toEqual(sentences);
  });
});

// --- The commands of the contract ----------------------------------------------------------------------------------------

const TARGET =
  "-- --shell --agent --prompt --prompt-file --model --permission --reason --allow-root --untested --agent-command --workflow";
const POLICY =
  "--attempts --backoff --timeout --idle-timeout --grace --priority --on-lost --expect --on-finish --on-failure --output --label --cwd --env --env-pass --secret --account --pool --worktree --project";
const LOOP_POLICY = `${POLICY} --catch-up --catch-up-limit --overlap --jitter --expires-at --expires-after-runs --breaker --queue-limit`;
const SCHEDULE = "--every --cron --tz --at --dynamic";

/** Written by hand from the contract: each command with its words and flags. */
const commands: { readonly [command: string]: string } = {
  up: "--foreground --until-idle",
  down: "--drain --stop-runs",
  status: "",
  "daemon install": "--enable",
  "daemon uninstall": "",
  "daemon logs": "",
  doctor: "--fix",

  "loop add": `NAME ${SCHEDULE} ${TARGET} ${LOOP_POLICY}`,
  "loop ls": "",
  "loop show": "LOOP",
  "loop pause": "LOOP",
  "loop resume": "LOOP",
  "loop archive": "LOOP",
  "loop unarchive": "LOOP",
  "loop rename": "LOOP NAME",
  "loop rm": "LOOP",
  "loop run": "LOOP",
  "loop edit": `LOOP ${SCHEDULE} ${TARGET} ${LOOP_POLICY}`,
  "loop slots": "LOOP --limit --cursor --each",
  "schedule next": "EXPR --tz --from --count",
  "schedule explain": "EXPR",
  apply: "PATH --dry-run --prune --watch",

  run: `${TARGET} ${POLICY} --wait --detach --input --wait-limit`,
  runs: "--loop --status --label --since --limit --cursor",
  show: "RUN",
  logs: "RUN --transcript --step --attempt --follow --stderr --raw --tail",
  cancel: "RUN --reason",
  retry: "RUN --from --fresh",
  approve: "RUN STEP --note",
  reject: "RUN STEP --note",
  why: "THING",
  events: "--follow --run",

  "workflow ls": "",
  "workflow show": "",
  "workflow validate": "FILE",
  "workflow graph": "FILE",
  "workflow archive": "",
  "template ls": "",
  "template show": "",
  "template render": "",
  "event send": "TYPE --id --source --subject --data",
  "route add": "",
  "route ls": "",
  "route show": "",
  "route test": "",
  "route pause": "",
  "route resume": "",
  "route rm": "",
  "queue ls": "",
  "queue show": "",
  "queue requeue": "",
  "queue cancel": "",
  "queue hold": "",
  "queue release": "",
  "queue priority": "",
  "import github": "",
  "import markdown": "",
  "import crontab": "",
  "import systemd": "",
  "limit set": "",
  "limit ls": "",
  "account add": "",
  "account ls": "",
  "account show": "",
  "account enable": "",
  "account disable": "",
  "account hold": "",
  "account release": "",
  "account rm": "",
  "pool set": "",
  "pool ls": "",
  "agent ls": "",

  backup: "FILE",
  restore: "",
  export: "",
  "import bundle": "FILE",
  gc: "--dry-run",
  "worktree ls": "",
  "worktree rm": "RUN|PATH --discard",
  "worktree prune": "",
  "config path": "",
  "config show": "",
  "config check": "",
  "config schema": "",
  completion: "SHELL",
  version: "",
};

/** Commands of parts that are not built yet. */
const absent = /^(workflow|template|event|route|queue|pool) |^(approve|reject|import github|import markdown)$/;

describe("the commands of the contract", () => {
  const dotted = (command: string): string => command.replaceAll(" ", ".");

  test("each one exists, or is refused by name", () => {
    const nowhere = Object.keys(commands).filter(
      (command) => findEntry(dotted(command)) === undefined && !laterCommands.includes(dotted(command)),
    );
    expect(nowhere).toEqual([]);
  });

  test("nothing is both there and refused", () => {
    expect(laterCommands.filter((name) => findEntry(name) !== undefined)).toEqual([]);
  });

  test("what is only refused by name is of a part that does not exist yet", () => {
    const missing = Object.keys(commands).filter(
      (command) => findEntry(dotted(command)) === undefined && !absent.test(command),
    );
    expect(missing).toEqual([]);
  });

  test("each one takes the words and flags that the contract names", async () => {
    const lacking: string[] = [];
    for (const [command, words] of Object.entries(commands)) {
      const entry = findEntry(dotted(command));
      if (entry === undefined) continue;
      const contract = contractOf((await entry.load()).operation, false);
      for (const word of words.split(" ").filter((one) => one !== ""))
        if (contract.arguments[word] === undefined && contract.flags[word] === undefined)
          lacking.push(`drover ${command} ${word}`);
    }
    expect(lacking).toEqual([]);
  });
});
