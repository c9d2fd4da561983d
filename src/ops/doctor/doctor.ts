import { flag } from "../fields.ts";
import { findingKinds } from "./finding-codes.ts";
import { defineOperation, type Examination, type LocalContext } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

type State = "planned" | "done" | "failed" | "declined";
interface Act {
  readonly does: string;
  readonly state: State;
  /** Why it failed. */
  readonly error: string | null;
}

export const operation = defineOperation({
  name: "doctor",
  where: "local",
  raises: ["conflict", "unauthorised"],
  unconfigured: true,
  summary:
    "Look for what is wrong or left over, each with a code and the command that mends it; ends with 1 on findings",
  input: {
    fix: flag("mend what can be mended without loss: lists it, then asks"),
    dryRun: flag("only list what --fix would do"),
    selfTest: flag("also start a run of one second through the daemon, and judge it to its end"),
  },
  output: object({
    ok: boolean,
    findings: listOf(
      object({
        check: string,
        level: oneOf(["ok", "note", "warning", "problem"]),
        code: nullable(string),
        subject: nullable(string),
        message: string,
        hint: nullable(string),
        command: nullable(string),
        fixable: boolean,
      }),
    ),
    counts: listOf(
      object({
        code: string,
        level: oneOf(["note", "warning", "problem"]),
        count: integer,
        shown: integer,
      }),
    ),
    actions: listOf(
      object({ does: string, state: oneOf(["planned", "done", "failed", "declined"]), error: nullable(string) }),
    ),
    selfTest: nullable(object({ ok: boolean, runId: nullable(string), message: string })),
  }),
  cli: {
    exit: (answer: { readonly ok: boolean }) => (answer.ok ? 0 : 1),
    examples: ["doctor", "doctor --fix --dry-run", "doctor --fix --yes", "doctor --self-test", "doctor --json"],
    notes: [
      "Problems and warnings end it with 1, notes do not. docs/reference/findings.md lists every code.",
      "It only looks; with --fix it ends no process that is not proved to be ours, and removes nothing that holds work.",
    ],
  },
  async run(context, { fix, dryRun, selfTest }) {
    const { examination, actions } = await examine(context, fix || dryRun, dryRun);
    const tested = selfTest ? await context.selfTest() : null;
    const failed =
      tested === null || tested.ok
        ? []
        : [
            {
              check: findingKinds.self_test_failed.check,
              level: findingKinds.self_test_failed.level,
              code: "self_test_failed" as const,
              subject: tested.runId,
              message: tested.message,
              hint: `The daemon's log: ${context.places.daemonLog}`,
              command: tested.runId === null ? null : `drover show ${tested.runId}`,
              fixable: false,
            },
          ];
    const counts = [...examination.counts, ...failed.map(({ code, level }) => ({ code, level, count: 1, shown: 1 }))];
    return {
      ok: counts.every(({ level }) => level === "note"),
      findings: [...examination.findings, ...failed],
      counts,
      actions,
      selfTest: tested,
    };
  },
});

/** Looks; mends where that is asked for and answered, and then looks again. */
async function examine(
  context: LocalContext,
  fix: boolean,
  dryRun: boolean,
): Promise<{ readonly examination: Examination; readonly actions: readonly Act[] }> {
  const examination = await context.inspect();
  const { mendings } = examination;
  if (!fix || mendings.length === 0) return { examination, actions: [] };
  const all = (state: State) => mendings.map(({ does }) => ({ does, state, error: null }));
  if (dryRun) return { examination, actions: all("planned") };
  const list = mendings.map(({ does }) => `  ${does}\n`).join("");
  if (!(await context.confirm(`doctor would:\n${list}Do ${mendings.length === 1 ? "it" : "all of this"}?`)))
    return { examination, actions: all("declined") };
  const actions: Act[] = [];
  for (const { does, perform } of mendings)
    try {
      await perform();
      actions.push({ does, state: "done", error: null });
    } catch (error) {
      // Whatever it was: the others are done all the same, and the second look says what is left.
      actions.push({ does, state: "failed", error: error instanceof Error ? error.message : String(error) });
    }
  return { examination: await context.inspect(), actions };
}
