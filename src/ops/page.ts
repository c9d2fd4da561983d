/** Pages of lists: every list has the same two inputs. */
import { integer, text, withDefault } from "./fields.ts";

/** Most items of one page. */
export const MAX_PAGE = 1_000;

export const pageFields = (usual: number) =>
  ({
    limit: withDefault(integer("how many at most", { min: 1, max: MAX_PAGE }), usual),
    cursor: text("where to go on: `next` of the page before", { placeholder: "CURSOR" }),
  }) as const;

export const pageRequest = (input: { readonly limit: number; readonly cursor: string | undefined }) => ({
  limit: input.limit,
  cursor: input.cursor ?? null,
});
