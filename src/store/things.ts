/** What a word typed by a person may mean, and what may stand where one is being typed. */
import type { OfferedThing } from "../core/ports.ts";
import { all, read, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { suffixKey } from "./runs.ts";
import { sql, type Sql } from "./sql.ts";

/** The smallest text that is larger than all that begin with this one. Ids hold nothing above `z`. */
const after = (prefix: string): string => `${prefix}{`;

interface Thing {
  readonly id: string;
  readonly name: string | null;
}

/** By id, else by name, else by the beginning or the end of an id; an attempt or a step by its id alone. Each answers from an index. */
export const resolve = read(
  "things.resolve",
  function* (input: { kind: "loop" | "run" | "attempt" | "step"; ref: string; limit: number }): Steps<Thing[]> {
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
      const end = suffixKey(word);
      const rows = yield* all<Row>(
        sql`select id, name from (select id, name from loops where id >= ${word} and id < ${after(word)} order by id limit ${limit}) as begins
            union select id, name from (select id, name from loops where suffix_key >= ${end} and suffix_key < ${after(end)} order by suffix_key limit ${limit}) as ends
            order by id limit ${limit}`,
      );
      return rows
        .filter((row) => (row["id"] as string).startsWith(word) || (row["id"] as string).endsWith(word))
        .map((row) => ({ id: row["id"] as string, name: row["name"] as string }));
    }
    if (input.kind === "attempt") {
      const runs = yield* all<Row>(sql`select run_id from attempts where id = ${word}`);
      return runs.map((row) => ({ id: row["run_id"] as string, name: null }));
    }
    if (input.kind === "step") {
      const runs = yield* all<Row>(sql`select run_id from steps where id = ${word}`);
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

/** Later than any instant: where a walk along an index begins. */
const NEVER = Number.MAX_SAFE_INTEGER;

/** The smallest text that is larger than all names that begin with this one: nothing sorts above the last code point. */
const afterName = (prefix: string): string => `${prefix}\u{10ffff}`;

/**
 * Things whose name or id begins with a text, for a person who is typing it: loops by name, runs newest first. Only
 * `among` rows are looked at, along an index, before `which` sorts out: what lies behind them is not offered.
 */
export const offer = read(
  "things.offer",
  function* (input: {
    kind: "loop" | "run";
    prefix: string;
    which: "any" | "active" | "paused" | "archived" | "live" | "ended";
    among: number;
    limit: number;
  }): Steps<OfferedThing[]> {
    const { kind, prefix, which, among, limit } = input;
    if (kind === "loop") {
      const archived = which === "archived" ? sql`is not null` : sql`is null`;
      const rows = yield* all<Row>(
        sql`select id, name, status, schedule from loops where name >= ${prefix} and name < ${afterName(prefix)} and archived_at ${archived} order by name, id limit ${among}`,
      );
      const wanted = (status: unknown): boolean =>
        which === "paused" ? status !== "active" : which === "active" ? status === "active" : true;
      return rows
        .filter((row) => wanted(row["status"]))
        .slice(0, limit)
        .map((row) => ({
          id: row["id"] as string,
          name: row["name"] as string,
          status: row["status"] as string,
          at: null,
        }));
    }
    const columns = sql`id, loop_name, target, status, queued_at, finished_at`;
    const begun = prefix === "" ? sql`` : sql`and id >= ${prefix} and id < ${after(prefix)}`;
    const rows = yield* all<Row>(
      which === "live"
        ? newestLive(columns, begun, among)
        : prefix === ""
          ? sql`select ${columns} from runs where queued_at < ${NEVER} order by queued_at desc, id desc limit ${among}`
          : sql`select ${columns} from runs where id >= ${prefix} and id < ${after(prefix)} order by id desc limit ${among}`,
    );
    return rows
      .filter((row) => which !== "ended" || row["finished_at"] !== null)
      .slice(0, limit)
      .map((row) => ({
        id: row["id"] as string,
        name: (row["loop_name"] as string | null) ?? nameOf(row["target"] as string),
        status: row["status"] as string,
        at: ((row["finished_at"] as number | null) ?? row["queued_at"]) as number,
      }));
  },
);

/** The newest runs that have not ended: the newest of each status, along the index that has them apart. */
function newestLive(columns: Sql, asked: Sql, limit: number): Sql {
  const newest = (status: Sql): Sql =>
    sql`select * from (select ${columns} from runs where status = ${status} and finished_at is null ${asked}
          order by queued_at desc, id desc limit ${limit}) as newest`;
  return sql`select * from (${newest(sql`'queued'`)} union all ${newest(sql`'running'`)} union all ${newest(sql`'waiting'`)}) as live
    order by queued_at desc, id desc limit ${limit}`;
}

/** What a run without a loop is called: its program or its agent. Arguments are not shown where nobody asked for them. */
function nameOf(target: string): string {
  const { argv, shell, provider } = JSON.parse(target) as { argv?: string[]; shell?: boolean; provider?: string };
  return provider ?? (shell === true ? "a shell command" : (argv?.[0]?.split("/").at(-1) ?? ""));
}
