import { contentsDocument, contentsShape } from "./copy-document.ts";
import { flag, folder, required } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "restore",
  where: "local",
  raises: ["conflict"],
  summary: "Put a backup in the place of the store; starts nothing, and keeps what was there",
  input: {
    file: required(folder("the backup", { placeholder: "FILE", completes: "file" })),
    dryRun: flag("do everything but the change itself, and say what it would be"),
    paused: flag("pause every loop, as when the machine of the backup still works"),
  },
  output: object({
    file: string,
    contents: contentsShape,
    cancelled: integer,
    atWork: integer,
    missed: integer,
    pausedLoops: integer,
    replaced: nullable(string),
    dryRun: boolean,
  }),
  cli: {
    positionals: ["file"],
    examples: ["restore backups/manual-20260101T030000Z.db --dry-run", "restore /mnt/disk/drover.db --yes"],
    notes: [
      "The daemon has to be down. Runs that had not ended in the backup are cancelled (`drover retry` starts one again), and",
      "what was due since is recorded as missed: a restore starts nothing. Loops go on with their next instant.",
    ],
  },
  async run({ files, confirm }, { file, dryRun, paused }) {
    const done = await files.restore({ file, dryRun, confirm, paused });
    return { file, ...done, contents: contentsDocument(done.contents), dryRun };
  },
});
