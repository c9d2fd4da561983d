import { WALK } from "../../core/limits.ts";
import { loopStatuses } from "../../core/loop-states.ts";
import { awayRuns } from "../accounts/away.ts";
import { loopKeys, toLoopDocument } from "../documents.ts";
import { choices, flag, text } from "../fields.ts";
import { labelField } from "../list-filters.ts";
import { defineOperation } from "../operation.ts";
import { pageFields, pageRequest } from "../page.ts";
import { nullable, object, pageOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "loop.ls",
  where: "read",
  summary: "List loops by name",
  input: {
    archived: flag("also those that are archived"),
    status: choices(`only loops with this status, or one of these: ${loopStatuses.join(", ")}`, loopStatuses, {
      placeholder: "STATUS[,...]",
    }),
    failing: flag("only loops whose last run failed"),
    label: labelField("only loops with this label"),
    file: text("only loops that were applied from this file, as `loop show` names it", {
      placeholder: "FILE",
      completes: "file",
    }),
    ...pageFields(50),
  },
  output: pageOf(
    object({
      ...loopKeys,
      /** The run that waits because its agent's program is not there. */
      waitsForProgram: nullable(string),
    }),
  ),
  cli: {
    excludes: [["archived", "failing"]],
    examples: ["loop ls", "loop ls --failing", "loop ls --status paused --json"],
    notes: [
      `--status, and any filter beside --label, looks through ${WALK} loops for a page: it may hold fewer than --limit and have a next one.`,
    ],
  },
  async run({ store }, input) {
    const { items, next } = await store.loops.list({
      ...pageRequest(input),
      archived: input.archived,
      label: input.label ?? null,
      status: input.status ?? null,
      trouble: input.failing ? "failing" : null,
      managedBy: input.file ?? null,
    });
    const away = await awayRuns(store, null);
    return {
      items: items.map((loop) => ({
        ...toLoopDocument(loop),
        waitsForProgram: away.find(({ loopId }) => loopId === loop.id)?.id ?? null,
      })),
      next,
    };
  },
});
