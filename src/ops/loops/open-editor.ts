import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AppError, type ErrorDocument, type Problem } from "../../core/errors.ts";
import type { LoopRecord } from "../../core/records.ts";
import type { DeclaredRequest } from "../declared/declared-door.ts";
import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, type LoopAnswer, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation, type LocalContext } from "../operation.ts";

export const operation = defineOperation({
  name: "loop.editor",
  where: "local",
  summary: "Open a loop in an editor, and change it to what is saved there",
  input: { loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })) },
  output: loopAnswerShape,
  cli: { positionals: ["loop"] },
  async run(context, { loop: ref }) {
    const editor = editorOf(context);
    const found = await context.reading(async ({ store }) => {
      const loop = await findLoop(store, ref);
      const prompt = loop.target.kind === "agent" ? await store.prompts.get(loop.target.prompt) : null;
      return { loop, prompt: prompt?.content ?? null };
    });
    // Nothing to open it with, or nothing to open: it is said as where nothing was given.
    if (editor === null || found === null || found.loop.archivedAt !== null)
      return (await context.perform("loop.edit", { loop: ref })) as LoopAnswer;
    return edit(context, editor, found.loop, found.prompt);
  },
});

/** What the user edits with; null where nobody could. */
function editorOf({ env, hasTerminal }: LocalContext): string | null {
  const chosen = [env["VISUAL"], env["EDITOR"]].find((one) => one !== undefined && one.trim() !== "");
  return chosen ?? (hasTerminal ? "vi" : null);
}

const headOf = ({ name, managedBy }: LoopRecord): string =>
  [
    `The loop ${name}, as drover.yaml writes it. A line that you take out goes back to what is usual.`,
    "It is changed when you save and close; nothing that was due before starts. `drover config schema` has every key.",
    ...(managedBy === null ? [] : [`It is declared in ${managedBy}: the next \`drover apply\` of that puts it back.`]),
  ]
    .map((line) => `# ${line}\n`)
    .join("");

async function edit(
  context: LocalContext,
  editor: string,
  loop: LoopRecord,
  prompt: string | null,
): Promise<LoopAnswer> {
  const [{ writeDeclaredText }, { formOfLoop, promptForm }] = await Promise.all([
    import("../declared/declared-text.ts"),
    import("../declared/declared-form.ts"),
  ]);
  const { limits } = context.settings;
  const form = formOfLoop(loop, { limits, prompt: prompt === null ? null : promptForm(prompt) });
  const before = `${headOf(loop)}${writeDeclaredText(form)}`;
  // A prompt may be in it: for this user alone.
  const folder = mkdtempSync(join(tmpdir(), "drover-edit-"));
  const file = join(folder, "loop.yaml");
  writeFileSync(file, before, { mode: 0o600 });
  let keeps = false;
  try {
    for (;;) {
      const status = await context.attach({
        argv: ["/bin/sh", "-c", `${editor} "$1"`, "sh", file],
        env: context.env,
        cwd: context.cwd,
      });
      if (status !== 0)
        throw new AppError("invalid", "editor_failed", `the editor ended with ${status}; nothing was changed`, {
          hint: "VISUAL or EDITOR names another one.",
        });
      const bytes = readFileSync(file);
      const after = bytes.toString();
      if (after === before || after.replaceAll(/^\s*(#.*)?$/gm, "").trim() === "")
        return await unchanged(context, loop);
      const problems = await changeTo(context, loop, bytes, file);
      if (!Array.isArray(problems)) return problems;
      const lines = problems.map(({ line, column, path, message, hint }: Problem) => {
        const key = path === undefined || path === "" || message.includes(path) ? "" : ` [${path}]`;
        return `${line ?? 1}:${column ?? 1}: ${message}${key}${hint === undefined ? "" : `. ${hint}`}\n`;
      });
      if (context.hasTerminal && (await context.confirm(`${lines.join("")}Edit again?`))) continue;
      keeps = true;
      throw new AppError(
        "invalid",
        problems[0]?.code ?? "bad_declaration",
        `what was written is no loop; nothing was changed`,
        {
          hint: `It is kept in ${file}.`,
          problems,
        },
      );
    }
  } catch (error) {
    // What somebody has written is not thrown away because the loop was changed meanwhile or the daemon is away.
    if (keeps || !(error instanceof AppError) || error.code === "editor_failed") throw error;
    keeps = readFileSync(file, "utf8") !== before;
    const { kind, code, message, hint, path } = error;
    throw !keeps
      ? error
      : new AppError(kind, code, message, {
          hint: `${hint === undefined ? "" : `${hint} `}What you wrote is kept in ${file}.`,
          ...(path === undefined ? {} : { path }),
        });
  } finally {
    if (!keeps) rmSync(folder, { recursive: true, force: true });
  }
}

async function unchanged(context: LocalContext, loop: LoopRecord): Promise<LoopAnswer> {
  return answer(context, loop.id, [
    { code: "unchanged", message: "nothing was changed", hint: "the text was left as it was" },
  ]);
}

async function answer(context: LocalContext, loopId: string, warnings: LoopAnswer["warnings"]): Promise<LoopAnswer> {
  const given = await context.reading(async (reading) =>
    answerLoop(reading, await findLoop(reading.store, loopId), warnings),
  );
  if (given === null)
    throw new AppError("not_found", "loop_not_found", `there is no loop ${loopId}`, {
      path: "loop",
      hint: "`drover loop ls --archived` lists all loops.",
    });
  return given;
}

/** Changes the loop to what a text says; answers what is wrong with it where it cannot. */
async function changeTo(
  context: LocalContext,
  loop: LoopRecord,
  bytes: Uint8Array,
  file: string,
): Promise<LoopAnswer | Problem[]> {
  const [
    { readDeclaredText },
    { inFormWords, inLoopWords, readLoopForm },
    { draftLoop },
    { loopChange },
    { readBytes },
  ] = await Promise.all([
    import("../declared/declared-text.ts"),
    import("../declared/declared-form.ts"),
    import("./draft-loop.ts"),
    import("../declared/declared-plan.ts"),
    import("../source.ts"),
  ]);
  const read = readDeclaredText(bytes);
  if (read.value === undefined || read.problems.length > 0) return read.problems.map((one) => ({ ...one, file }));
  const told = (errors: readonly AppError[]): Problem[] =>
    errors.map(({ code, message, hint, path = "" }) => ({
      code,
      message,
      ...(hint === undefined ? {} : { hint }),
      path,
      file,
      ...read.locate(path),
    }));
  const home = context.env["HOME"];
  const reading = { cwd: context.cwd, readBytes, ...(home === undefined ? {} : { home }) };
  const { input, faults } = readLoopForm(read.value, reading);
  if (input === null) return told(faults);
  const { draft, faults: wrong } = await draftLoop(context, loop.name, input);
  if (draft === null) return told(wrong.map((one) => inFormWords(one, "loop")));
  const { schedule, policy, target } = draft;
  const { changes, change } = loopChange(loop, { schedule, policy, target: target.target }, context.settings.limits);
  if (changes.length === 0) return unchanged(context, loop);
  const request: DeclaredRequest = {
    seen: [{ loopId: loop.id, name: loop.name, revision: loop.revision }],
    loops: {
      add: [],
      change: [{ loopId: loop.id, name: loop.name, change, managedBy: loop.managedBy }],
      adopt: [],
      archive: [],
    },
    accounts: { add: [], change: [], remove: [] },
    limits: { set: [], remove: [] },
    prompts: target.prompt === null ? {} : { [target.prompt.ref.digest]: target.prompt.content },
  };
  const done = (await context.perform("declared.apply", { changes: request })) as {
    readonly faults: readonly ErrorDocument[];
    readonly warnings: LoopAnswer["warnings"];
  };
  if (done.faults.length > 0)
    return told(
      done.faults.map(({ kind, code, message, hint, path }) =>
        inFormWords(
          new AppError(kind, code, message, {
            ...(hint === undefined ? {} : { hint }),
            ...(path === undefined ? {} : { path }),
          }),
          "loop",
        ),
      ),
    );
  const said = done.warnings.filter(({ code }) => code !== "not_firing");
  return answer(
    context,
    loop.id,
    said.map((one) => ({ ...one, message: inLoopWords(one.message), hint: inLoopWords(one.hint) })),
  );
}
