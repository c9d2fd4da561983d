/** Prompts, each kept once by its digest, as long as a loop or a run needs it (ADR 0013). */
import type { Limits } from "../core/limits.ts";
import { finish, instant, many, one, operation, read, readInstant, runAll, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { jsonList, skipLocked, sql, storeNow, type Sql } from "./sql.ts";

/** A prompt is put before what refers to it: by then that is there. */
const UNUSED_MS = 86_400_000;
/** Looked at in one transaction: each may be many megabytes that the writer has to give back. */
const AT_ONCE = 50;

/** Statements that keep a prompt. */
export const promptWrites = (
  { digest, content, bytes }: { readonly digest: string; readonly content: string; readonly bytes: number },
  now: number,
): Sql[] => [
  // First, because the lock of this row is what keeps a prompt from being collected meanwhile.
  sql`insert into prompt_looks (digest, look_at, created_at) values (${digest}, ${now + UNUSED_MS}, ${now})
      on conflict (digest) do update set look_at = excluded.look_at where prompt_looks.look_at < excluded.look_at`,
  sql`insert into prompts (digest, content, bytes, created_at) values (${digest}, ${content}, ${bytes}, ${now})
      on conflict (digest) do nothing`,
];

export const putPrompt = operation(
  "prompts.put",
  function* (input: { digest: string; content: string; bytes: number }): Steps<void> {
    yield* runAll(...promptWrites(input, yield* instant()));
  },
  { wakes: false },
);

export const getPrompt = read("prompts.get", function* (input: { digest: string }): Steps<{ content: string } | null> {
  const row = yield* one<{ content: string }>(sql`select content from prompts where digest = ${input.digest}`);
  return row === undefined ? null : { content: row.content };
});

/**
 * Removes prompts that no loop names, no run that is live, and none that has ended within `promptRetentionMs`. One bounded
 * batch of those whose look is due; the others are looked at when they may have become free.
 */
export const collectPrompts = operation(
  "prompts.collect",
  function* ({
    limits,
  }: {
    limits: Pick<Limits, "promptRetentionMs" | "janitorBatch">;
  }): Steps<{ removed: number; more: boolean }> {
    const { promptRetentionMs } = limits;
    const batch = Math.min(limits.janitorBatch, AT_ONCE);
    const [clock, due] = yield* many<[{ now: number }, Row]>(
      readInstant,
      sql`select digest from prompt_looks where look_at <= ${storeNow} order by look_at, digest limit ${batch} ${skipLocked}`,
    );
    const now = clock[0]?.now ?? 0;
    if (due.length === 0) return { removed: 0, more: false };
    const named = yield* many<Row[]>(
      ...due.map(
        ({ digest }) =>
          sql`select ${digest as string} as digest,
                case when exists (select 1 from loops where prompt_digest = ${digest as string})
                       or exists (select 1 from runs where prompt_digest = ${digest as string} and finished_at is null)
                       or exists (select 1 from steps where prompt_digest = ${digest as string} and finished_at is null) then 1 else 0 end as live,
                (select max(finished_at) from runs where prompt_digest = ${digest as string}) as ended_at`,
      ),
    );
    const looks = named.flatMap((rows) =>
      rows.map((row) => {
        const endedAt = row["ended_at"] as number | null;
        const neededUntil = row["live"] !== 0 ? now + promptRetentionMs : (endedAt ?? -Infinity) + promptRetentionMs;
        return { digest: row["digest"] as string, neededUntil };
      }),
    );
    const free = looks.filter(({ neededUntil }) => neededUntil <= now).map(({ digest }) => digest);
    yield* finish(
      sql`delete from prompts where digest in (${jsonList(free)})`,
      sql`delete from prompt_looks where digest in (${jsonList(free)})`,
      sql`delete from definition_steps where digest in (${jsonList(free)})`,
      sql`delete from definition_needs where digest in (${jsonList(free)})`,
      ...looks
        .filter(({ neededUntil }) => neededUntil > now)
        .map(
          ({ digest, neededUntil }) => sql`update prompt_looks set look_at = ${neededUntil} where digest = ${digest}`,
        ),
    );
    return { removed: free.length, more: due.length >= batch };
  },
  { wakes: false },
);
