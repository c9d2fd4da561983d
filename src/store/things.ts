/** What a word typed by a person may mean. */
import { all, read, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { suffixKey } from "./runs.ts";
import { sql } from "./sql.ts";

/** The smallest text that is larger than all that begin with this one. Ids hold nothing above `z`. */
const after = (prefix: string): string => `${prefix}{`;

interface Thing {
  readonly id: string;
  readonly name: string | null;
}

/** By id, else by name, else by the beginning or the end of an id; an attempt by its id alone. Each answers from an index. */
export const resolve = read(
  "things.resolve",
  function* (input: { kind: "loop" | "run" | "attempt"; ref: string; limit: number }): Steps<Thing[]> {
    const { ref, limit } = input;
    const word = ref.toLowerCase();
    if (input.kind === "loop") {
      const exact = yield* all<Row>(
        sql`select id, name from loops where id = ${word} or (name = ${ref} and archived_at is null) order by id limit ${limit}`,
      );
      if (exact.length > 0) return exact.map((row) => ({ id: row["id"] as string, name: row["name"] as string }));
      const archived = yield* all<Row>(sql`select id, name from loops where name = ${ref} order by id limit ${limit}`);
      if (archived.length > 0) return archived.map((row) => ({ id: row["id"] as string, name: row["name"] as string }));
      if (!/^[0-9a-z_]+$/.test(word)) return [];
      const rows = yield* all<Row>(
        sql`select id, name from loops where (id >= ${word} and id < ${after(word)}) or id like ${`%${word.replaceAll("_", "")}`} order by id limit ${limit}`,
      );
      return rows
        .filter((row) => (row["id"] as string).startsWith(word) || (row["id"] as string).endsWith(word))
        .map((row) => ({ id: row["id"] as string, name: row["name"] as string }));
    }
    if (input.kind === "attempt") {
      const runs = yield* all<Row>(sql`select run_id from attempts where id = ${word}`);
      return runs.map((row) => ({ id: row["run_id"] as string, name: null }));
    }
    const exact = yield* all<Row>(sql`select id from runs where id = ${word}`);
    if (exact.length > 0) return exact.map((row) => ({ id: row["id"] as string, name: null }));
    if (!/^[0-9a-z_]+$/.test(word)) return [];
    const end = suffixKey(word);
    const rows = yield* all<Row>(
      sql`select id from (select id from runs where id >= ${word} and id < ${after(word)} order by id limit ${limit}) as begins
          union select id from (select id from runs where suffix_key >= ${end} and suffix_key < ${after(end)} order by suffix_key limit ${limit}) as ends
          order by id limit ${limit}`,
    );
    return rows.map((row) => ({ id: row["id"] as string, name: null }));
  },
);
