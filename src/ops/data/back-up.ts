import { AppError } from "../../core/errors.ts";
import { folder, integer as wholeNumber, text, withDefault } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { contentsDocument, contentsShape } from "./copy-document.ts";
import { listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "backup",
  where: "local",
  raises: ["conflict", "not_found"],
  summary: "Copy the store, daemon or not; the copy is read from end to end before it counts",
  input: {
    file: folder("where the copy goes; a name in backups/ beside the store unless given", {
      placeholder: "FILE",
      completes: "file",
    }),
    reason: withDefault(text("why, the first word of the name in backups/"), "manual"),
    keep: wholeNumber("with a name in backups/: how many of this reason stay", {
      min: 1,
      max: 10_000,
      fallback: "limits.backupsKept",
    }),
  },
  output: object({ file: string, reason: string, contents: contentsShape, removed: listOf(string) }),
  cli: {
    positionals: ["file"],
    examples: ["backup", "backup /mnt/disk/drover.db", "backup --reason nightly --keep 14"],
    notes: [
      "The copy is one SQLite file with loops, runs and their outputs and ends of logs, accounts, prompts, events.",
      "Not in it: whole logs, worktrees, logins, values of secrets, config.yaml. On PostgreSQL it says the command for pg_dump.",
    ],
  },
  async run(context, { file, reason, keep }) {
    if (!/^[a-z0-9][a-z0-9-]{0,39}$/.test(reason) || reason.startsWith("before-"))
      throw new AppError("invalid", "bad_reason", `${JSON.stringify(reason)} cannot be part of a name`, {
        path: "--reason",
        hint: "Use lower-case letters, digits and dashes, at most 40; before-... is for upgrades.",
      });
    const done = await context.files.copy({
      target: file ?? null,
      reason,
      keep: keep ?? context.settings.limits.backupsKept,
    });
    return { file: done.file, reason, contents: contentsDocument(done.contents), removed: done.removed };
  },
});
