/** A store that holds just what some answers show: the same rows as the large one, and nothing else. */
import { type Database, quoted } from "./database.ts";

/** Read whole by every store, however long its history is. */
const WHOLE = ["hosts", "accounts", "holds", "resources", "cap_sets", "settings", "prompts", "prompt_looks", "claims"];
/** Rows beside those that an answer names by id: the heads of lists whose rows have none. */
const HEAD = 60;
const IDS = /\b(?:run|loop|step|att)_[0-9a-z]{26}\b/g;

const NAMES = /\b[a-z]+-\d{5}\b/g;

/** The loops that answers name. */
export const namesIn = (answers: readonly string[]): readonly string[] => [
  ...new Set(answers.flatMap((answer) => answer.match(NAMES) ?? [])),
];

/** The ids that answers name. */
export const idsIn = (answers: readonly string[]): ReadonlySet<string> =>
  new Set(answers.flatMap((answer) => answer.match(IDS) ?? []));

/**
 * Copies from the schema `big` of the same connection: what is live, what is named, and what belongs to that.
 * @param named loops that are named
 * @param loopNames those of them of which the newest slots are shown
 */
export async function copyPage(
  database: Database,
  ids: ReadonlySet<string>,
  named: readonly string[],
  loopNames: readonly string[],
): Promise<void> {
  const copy = (table: string, where: string) =>
    database.run(`insert into ${table} select * from big.${table} where ${where}`);
  await database.run("create temp table shown (id text primary key)");
  const values = [...ids].map((id) => `(${quoted(id)})`);
  for (let from = 0; from < values.length; from += 500)
    await database.run(`insert into shown values ${values.slice(from, from + 500).join(", ")}`);
  const show = (select: string) => database.run(`insert into shown ${select} on conflict (id) do nothing`);
  await show("select run_id from big.attempts where id in (select id from shown)");
  await show("select run_id from big.steps where id in (select id from shown)");
  await show("select id from big.runs where finished_at is null");
  await show("select loop_id from big.runs where id in (select id from shown) and loop_id is not null");
  await show(`select id from (select id from big.loops order by name, id limit ${HEAD}) as heads where 1 = 1`);
  await show(`select id from big.loops where name in (${[...named, ...loopNames].map(quoted).join(", ")})`);
  for (const table of WHOLE) {
    await database.run(`delete from ${table}`);
    await copy(table, "1 = 1");
  }
  await database.run("delete from events");
  const shown = "(select id from shown)";
  await copy("loops", `id in ${shown}`);
  await copy("loop_labels", `loop_id in ${shown}`);
  await copy("runs", `id in ${shown}`);
  await copy("run_labels", `run_id in ${shown}`);
  await copy("steps", `run_id in ${shown}`);
  await copy("attempts", `run_id in ${shown}`);
  await copy("worktrees", `run_id in ${shown}`);
  await copy("receipts", `step_id in (select id from steps)`);
  await copy("slots", `run_id in ${shown}`);
  await database.run(`insert into slots select * from big.slots where outcome = 'missed' and loop_id in (select id from loops)
    order by until_at desc limit ${HEAD} on conflict (loop_id, at) do nothing`);
  for (const name of loopNames)
    await database.run(`insert into slots select * from big.slots where loop_id = (select id from loops where name = ${quoted(name)})
      order by at desc limit ${HEAD * 4} on conflict (loop_id, at) do nothing`);
  await copy("events", `subject_kind in ('run', 'loop') and subject_id in ${shown}`);
  await database.run(
    `insert into events select * from big.events where id in (select id from big.events order by id limit ${HEAD * 4}) on conflict (id) do nothing`,
  );
}
