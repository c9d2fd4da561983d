/** What a copy of the store holds, as every surface shows it. */
import type { CopyContents } from "../operation.ts";
import { instant, integer, nullable, object } from "../shape.ts";

export const contentsDocument = ({ lastEventAt, ...rest }: CopyContents) => ({
  ...rest,
  lastEventAt: lastEventAt === null ? null : new Date(lastEventAt).toISOString(),
});

export const contentsShape = object({
  schema: integer,
  bytes: integer,
  loops: integer,
  runs: integer,
  attempts: integer,
  events: integer,
  lastEventAt: nullable(instant),
});
