import { createHash } from "node:crypto";
import type { HistoryPlace } from "../../core/ports.ts";
import type { LoopRecord } from "../../core/records.ts";
import { PROVIDERS } from "../accounts/agent-target.ts";
import { withhold, withoutSecrets } from "./bundle-secrets.ts";
import { runLine, writeBundle } from "./bundle.ts";
import { formOfAccount, formOfLoop, promptForm } from "../declared/declared-form.ts";
import { type Field, flag, folder } from "../fields.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { anything, integer, listOf, nullable, object, string } from "../shape.ts";
import { writeWhole } from "../write-whole.ts";

/** Loops read at a time, slots of one loop, and runs. */
const LOOPS = 200;
const SLOTS = 200;
const RUNS = 50;

const target: Field<string | undefined> = (() => {
  const file = folder("where it goes; standard output unless given", { placeholder: "FILE", completes: "file" });
  return {
    ...file,
    read: (given, path, reading, before) => (given === "-" ? "-" : file.read(given, path, reading, before)),
    check: (value, path) => (value === "-" ? undefined : file.check(value, path)),
  };
})();

interface Counts {
  loops: number;
  accounts: number;
  limits: number;
  runs: number;
  slots: number;
  /** `loop NAME env.KEY` */
  withheld: string[];
}

export const operation = defineOperation({
  name: "export",
  where: "read",
  summary: "Write loops, accounts and limits into a bundle for another machine, without any secret",
  input: {
    file: target,
    history: flag("also ended runs with their steps, attempts and events, and the slots of the loops"),
  },
  output: object({
    file: nullable(string),
    loops: integer,
    accounts: integer,
    limits: integer,
    runs: integer,
    slots: integer,
    withheld: listOf(string),
    sha256: string,
    /** The bundle's lines, where it goes to no file. */
    "items?": listOf(anything),
  }),
  cli: {
    positionals: ["file"],
    pieces: true,
    examples: ["export drover.bundle", "export drover.bundle --history", "export - | gzip"],
    notes: [
      "Values of variables whose names say that they are secrets are left out and listed. Logins, logs and worktrees are not in it.",
      "`drover import bundle FILE` takes it in; the loops arrive paused.",
    ],
  },
  async run(context, { file, history }) {
    const counts = noCounts();
    const items: unknown[] = [];
    const hash = createHash("sha256");
    const lines = bundleLines(context, history, counts);
    if (file !== undefined) await writeWhole(file, lines, { seen: (line) => hash.update(line) });
    else
      for await (const line of lines) {
        hash.update(line);
        items.push(JSON.parse(line));
      }
    return { file: file ?? null, ...counts, sha256: hash.digest("hex"), ...(file === undefined ? { items } : {}) };
  },
  async *follow(context, { file, history }) {
    const counts = noCounts();
    const lines = bundleLines(context, history, counts);
    if (file === undefined) {
      for await (const line of lines) yield { text: line };
      return;
    }
    await writeWhole(file, lines);
    yield { text: told(file, counts, history) };
  },
});

const noCounts = (): Counts => ({ loops: 0, accounts: 0, limits: 0, runs: 0, slots: 0, withheld: [] });

const plural = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`;

function told(file: string, { loops, accounts, limits, runs, withheld }: Counts, history: boolean): string {
  const what = [plural(loops, "loop"), plural(accounts, "account"), plural(limits, "limit")];
  return [
    `${file}: ${[...what, ...(history ? [plural(runs, "run")] : [])].join(", ")}`,
    ...withheld.map((one) => `left out: the value of ${one}, whose name says that it is a secret`),
    "",
  ].join("\n");
}

const bundleLines = (context: StoreContext, history: boolean, counts: Counts): AsyncGenerator<string> =>
  writeBundle(
    { madeAt: new Date(context.clock.now()).toISOString(), madeBy: context.build.version, history },
    content(context, history, counts),
  );

/** The names of every provider's keys. */
export async function providerKeys({ agents }: Pick<StoreContext, "agents">): Promise<readonly string[]> {
  return (await Promise.all(PROVIDERS.map((provider) => agents.about(provider)))).flatMap(
    ({ secretKeys }) => secretKeys,
  );
}

async function* content(context: StoreContext, history: boolean, counts: Counts): AsyncGenerator<object> {
  const { store, settings, places } = context;
  const keys = await providerKeys(context);
  const { accounts, limits } = await store.declared.rest({});
  const added = accounts.map(({ account }) => account).filter(({ name }) => name !== "default");
  const capOf = (id: string): number | null =>
    limits.find(({ resource }) => resource === `account:${id}`)?.limit ?? null;
  for (const account of added) {
    const { provider, name } = account;
    // Its folder is this machine's.
    const { home: _, ...own } = formOfAccount(account, capOf(account.id), places);
    const { form, withheld } = withhold(own, keys);
    counts.accounts++;
    counts.withheld.push(...withheld.map((one) => `account ${account.id} ${one}`));
    yield { kind: "account", provider, name, form, withheld };
  }
  for (const { resource, limit } of limits) {
    if (added.some(({ id }) => resource === `account:${id}`)) continue;
    counts.limits++;
    yield { kind: "limit", resource, limit };
  }
  const loops: LoopRecord[] = [];
  for (let cursor: string | null = null; ; ) {
    const page: Awaited<ReturnType<typeof store.loops.list>> = await store.loops.list({
      archived: false,
      label: null,
      limit: LOOPS,
      cursor,
    });
    for (const loop of page.items) {
      const prompt =
        loop.target.kind === "agent" ? await store.prompts.get({ digest: loop.target.prompt.digest }) : null;
      const whole = formOfLoop(loop, {
        limits: settings.limits,
        prompt: prompt === null ? null : promptForm(prompt.content),
      });
      const { form, withheld } = withhold(whole, keys);
      counts.loops++;
      counts.withheld.push(...withheld.map((one) => `loop ${loop.name} ${one}`));
      yield { kind: "loop", id: loop.id, name: loop.name, status: loop.status, form, withheld };
      if (history) loops.push(loop);
    }
    cursor = page.next;
    if (cursor === null) break;
  }
  if (!history) return;
  for (const loop of loops) yield* slotLines(context, loop.id, counts);
  for (let after: HistoryPlace | null = null; ; ) {
    const page: Awaited<ReturnType<typeof store.history.page>> = await store.history.page({ after, limit: RUNS });
    for (const past of page.items) {
      counts.runs++;
      yield runLine(withoutSecrets(past, keys));
    }
    after = page.next;
    if (after === null) return;
  }
}

async function* slotLines({ store }: StoreContext, loopId: string, counts: Counts): AsyncGenerator<object> {
  for (let cursor: string | null = null; ; ) {
    const page: Awaited<ReturnType<typeof store.slots.list>> = await store.slots.list({ loopId, limit: SLOTS, cursor });
    const items = page.items.flatMap(
      ({ at, untilAt, count, outcome, reason, coalescedInto, runId, lateMs, schedule }) =>
        outcome === null ? [] : [{ at, untilAt, count, outcome, reason, coalescedInto, runId, lateMs, schedule }],
    );
    counts.slots += items.length;
    if (items.length > 0) yield { kind: "slots", loopId, items };
    cursor = page.next;
    if (cursor === null) return;
  }
}
