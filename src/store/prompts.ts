/** Prompts, each kept once by its digest (ADR 0013). */
import { all, instant, one, operation, read, type Steps } from "./operation.ts";
import { sql } from "./sql.ts";

export const putPrompt = operation(
  "prompts.put",
  function* (input: { digest: string; content: string; bytes: number }): Steps<void> {
    const now = yield* instant();
    yield* all(
      sql`insert into prompts (digest, content, bytes, created_at) values (${input.digest}, ${input.content}, ${input.bytes}, ${now})
          on conflict (digest) do nothing`,
    );
  },
  { wakes: false },
);

export const getPrompt = read("prompts.get", function* (input: { digest: string }): Steps<{ content: string } | null> {
  const row = yield* one<{ content: string }>(sql`select content from prompts where digest = ${input.digest}`);
  return row === undefined ? null : { content: row.content };
});
