/** What an import would make of what was read elsewhere, beside the loops that are there: new, the same, or one that was changed here. */
import { existsSync } from "node:fs";
import { userInfo } from "node:os";
import { countLocal, parseCron } from "../../core/cron.ts";
import { AppError } from "../../core/errors.ts";
import { type LoopPolicy, loopName, loopPolicy } from "../../core/loop.ts";
import type { LoopRecord } from "../../core/records.ts";
import { commandTarget, type CommandTarget } from "../../core/target.ts";
import { checkZone, instantOf, nextTransition, type Transition } from "../../core/zone.ts";
import { NAME_LENGTH, type ForeignLoop, type ForeignSchedule, type Reading } from "../../triggers/foreign-loop.ts";
import { badInput, type Json } from "../fields.ts";
import { isFolder } from "../look.ts";
import type { LocalContext } from "../operation.ts";
import { readAs, type Schema } from "../schema.ts";
import { boolean, instant, integer, listOf, nullable, object, oneOf, type Shape, string } from "../shape.ts";
import { shellWord } from "../../core/shell-word.ts";

/** A schedule as it travels to where the loop is made. */
export type DraftSchedule =
  | { readonly kind: "cron"; readonly expression: string; readonly zone: string }
  | { readonly kind: "interval"; readonly everyMs: number }
  | { readonly kind: "once"; readonly at: number };

/** A loop to be made, checked. */
export interface ImportDraft {
  readonly name: string;
  readonly schedule: DraftSchedule;
  readonly target: CommandTarget;
  readonly policy: LoopPolicy;
}

/** What was read of one file, or of one program's answer. */
export interface ImportSource {
  readonly name: string;
  readonly readings: readonly Reading[];
}

/** The loop of an entry, for people and scripts. */
export interface ImportedLoop {
  readonly name: string;
  readonly schedule: Json;
  readonly argv: readonly string[];
  readonly shell: boolean;
  readonly cwd: string;
  /** Names of its variables. */
  readonly env: readonly string[];
  /** Variables whose secrets were not taken. */
  readonly withheld: readonly string[];
  /** What differs from the usual policy. */
  readonly policy: Json;
}

export interface ImportEntry {
  readonly source: string;
  readonly line: number;
  readonly kind: Reading["kind"];
  readonly text: string;
  /** Of a loop: `new`, `same` as one that is there, or `changed` here since. */
  readonly outcome: "new" | "same" | "changed" | null;
  readonly loop: ImportedLoop | null;
  readonly reason: string | null;
  readonly hint: string | null;
  readonly notes: readonly string[];
}

export interface ImportAnswer {
  readonly dryRun: boolean;
  /** The new loops were made: all of them. */
  readonly imported: boolean;
  /** Problems kept everything back. */
  readonly refused: boolean;
  readonly entries: readonly ImportEntry[];
  readonly counts: { readonly new: number; same: number; changed: number; left: number; problems: number };
  /** What is worth knowing of all of them. */
  readonly notes: readonly string[];
}

export const importAnswerShape: Shape = object({
  dryRun: boolean,
  imported: boolean,
  refused: boolean,
  entries: listOf(
    object({
      source: string,
      line: integer,
      kind: oneOf(["loop", "setting", "comment", "left", "problem"]),
      text: string,
      outcome: nullable(oneOf(["new", "same", "changed"])),
      loop: nullable(
        object({
          name: string,
          schedule: object({
            kind: string,
            "expression?": string,
            "zone?": string,
            "everyMs?": integer,
            "at?": instant,
          }),
          argv: listOf(string),
          shell: boolean,
          cwd: string,
          env: listOf(string),
          withheld: listOf(string),
          policy: {},
        }),
      ),
      reason: nullable(string),
      hint: nullable(string),
      notes: listOf(string),
    }),
  ),
  counts: object({ new: integer, same: integer, changed: integer, left: integer, problems: integer }),
  notes: listOf(string),
});

/** What an import is done with. */
export interface ImportRequest {
  readonly sources: readonly ImportSource[];
  readonly prefix: string | undefined;
  readonly dryRun: boolean;
  /** Problems do not keep the rest back. */
  readonly skipInvalid: boolean;
  /** What is worth knowing where something is new. */
  readonly notes: readonly string[];
  /** Why the loops are paused. */
  readonly reason: string;
}

/** How long a zone's clock is looked ahead for changes. */
const CHANGES_MS = 3 * 366 * 86_400_000;

/** What sources are read against on this host. */
export function surroundingsOf(context: LocalContext, hostZone: string) {
  const known = new Map<string, readonly Transition[]>();
  return {
    user: ownName(context),
    isZone(zone: string): boolean {
      try {
        checkZone(zone);
        return true;
      } catch {
        return false; // that is the answer
      }
    },
    clockChanges(zone: string | null, expression: string): boolean {
      const name = zone ?? hostZone;
      const changes = known.get(name) ?? transitionsOf(name, context.clock.now());
      known.set(name, changes);
      const cron = parseCron(expression);
      return changes.some(({ at, beforeMs, afterMs }) => {
        const [low, high] = [at + Math.min(beforeMs, afterMs), at + Math.max(beforeMs, afterMs)];
        return countLocal(cron, low, high) > 0;
      });
    },
  };
}

/** The changes of a zone's clock in the years to come. */
function transitionsOf(zone: string, now: number): readonly Transition[] {
  const found: Transition[] = [];
  for (let after = now; ; ) {
    const next = nextTransition(zone, after, now + CHANGES_MS);
    if (next === null) return found;
    found.push(next);
    after = next.at;
  }
}

/** Who drover runs as; there are systems with users that have no name. */
function ownName({ env }: LocalContext): string {
  try {
    return userInfo().username;
  } catch {
    return env["USER"] || env["LOGNAME"] || String(process.getuid?.() ?? "");
  }
}

/** Where a loop works that says nothing of it. */
export function homeOf({ env, cwd }: LocalContext): string {
  if (env["HOME"] !== undefined && env["HOME"].startsWith("/")) return env["HOME"];
  try {
    return userInfo().homedir;
  } catch {
    return cwd; // a user without a name has no home either
  }
}

/**
 * Plans the import, and makes the new loops, all or none, unless it is a dry run or there are problems.
 * Errors: AppError invalid `bad_input` for the prefix; conflict `name_taken` when somebody made such a loop meanwhile.
 */
export async function importLoops(
  context: LocalContext,
  hostZone: string,
  request: ImportRequest,
): Promise<ImportAnswer> {
  const { sources, prefix = "", dryRun, skipInvalid, reason } = request;
  if (!loopName.safeParse(`${prefix}${"x".repeat(NAME_LENGTH)}-1000`).success)
    throw badInput(
      "--prefix",
      `names cannot begin with ${JSON.stringify(prefix)}`,
      "Begin with a letter or a digit, and be short: letters, digits, spaces and . _ : @ / + -.",
    );
  const there = await loopsThere(context);
  const { entries, drafts } = plan(sources, there, prefix, hostZone, homeOf(context), context.clock.now());
  const count = (test: (entry: ImportEntry) => boolean): number => entries.filter(test).length;
  const counts = {
    new: count(({ outcome }) => outcome === "new"),
    same: count(({ outcome }) => outcome === "same"),
    changed: count(({ outcome }) => outcome === "changed"),
    left: count(({ kind }) => kind === "left"),
    problems: count(({ kind }) => kind === "problem"),
  };
  const isRefused = counts.problems > 0 && !skipInvalid;
  const makes = !dryRun && drafts.length > 0 && !isRefused;
  if (makes) await context.perform("import.loops", { loops: drafts, reason });
  return { dryRun, imported: makes, refused: isRefused, entries, counts, notes: counts.new > 0 ? request.notes : [] };
}

/** The exit status of an import: 2 where problems kept everything back. */
export const importExit = ({ refused: isRefused }: ImportAnswer): number => (isRefused ? 2 : 0);

/** Loops read at a time. */
const PAGE = 500;

async function loopsThere(context: LocalContext): Promise<readonly LoopRecord[]> {
  const found = await context.reading(async ({ store }) => {
    const loops: LoopRecord[] = [];
    for (let cursor: string | null = null; ; ) {
      const page: Awaited<ReturnType<typeof store.loops.list>> = await store.loops.list({
        limit: PAGE,
        cursor,
        archived: false,
        label: null,
      });
      loops.push(...page.items);
      if (page.next === null) return loops;
      cursor = page.next;
    }
  });
  return found ?? [];
}

interface Candidate {
  readonly index: number;
  readonly base: string;
  readonly foreign: ForeignLoop;
  readonly schedule: DraftSchedule;
  readonly target: CommandTarget;
  readonly policy: LoopPolicy;
}

/** What two loops have in common that start the same at the same instants. */
const scheduleKey = (schedule: LoopRecord["schedule"] | DraftSchedule): string =>
  schedule.kind === "cron"
    ? JSON.stringify([schedule.expression, schedule.zone])
    : schedule.kind === "interval"
      ? String(schedule.everyMs)
      : schedule.kind === "once"
        ? String(-schedule.at)
        : "other";
const targetKey = (target: LoopRecord["target"]): string =>
  target.kind === "command"
    ? JSON.stringify([
        target.argv,
        target.cwd,
        target.envPass,
        Object.entries(target.env).toSorted(([a], [b]) => (a < b ? -1 : 1)),
      ])
    : "other";

/** Pure but for looks at the disk. */
function plan(
  sources: readonly ImportSource[],
  there: readonly LoopRecord[],
  prefix: string,
  hostZone: string,
  home: string,
  now: number,
): { readonly entries: readonly ImportEntry[]; readonly drafts: readonly ImportDraft[] } {
  const entries: ImportEntry[] = [];
  const candidates: Candidate[] = [];
  for (const { name: source, readings } of sources)
    for (const { loop, ...reading } of readings) {
      if (loop === null) {
        entries.push({ source, ...reading, outcome: null, loop: null });
        continue;
      }
      try {
        const candidate = { index: entries.length, ...checked(loop, prefix, hostZone, home) };
        if (candidate.schedule.kind === "once" && candidate.schedule.at <= now) {
          const reason = "its one instant is over";
          entries.push({ source, ...reading, kind: "left", outcome: null, loop: null, reason, hint: "Leave it out." });
          continue;
        }
        candidates.push(candidate);
        entries.push({ source, ...reading, outcome: "new", loop: null });
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        const { message, hint = "Import it by hand: drover loop add." } = error;
        entries.push({ source, ...reading, kind: "problem", outcome: null, loop: null, reason: message, hint });
      }
    }

  // First what is there unchanged, each loop once: two equal lines are two loops.
  const unchanged = new Map<string, LoopRecord[]>();
  for (const loop of there) {
    const key = `${scheduleKey(loop.schedule)} ${targetKey(loop.target)}`;
    unchanged.set(key, [...(unchanged.get(key) ?? []), loop]);
  }
  const paired = new Map<Candidate, LoopRecord>();
  const used = new Set<string>();
  for (const candidate of candidates) {
    const loop = unchanged.get(`${scheduleKey(candidate.schedule)} ${targetKey(candidate.target)}`)?.shift();
    if (loop === undefined) continue;
    paired.set(candidate, loop);
    used.add(loop.id);
  }

  // Then what was changed here: imported once under that name, and still the same command or the same schedule.
  const byName = new Map(there.map((loop) => [loop.name, loop]));
  const names = new Set(byName.keys());
  const nextNumber = new Map<string, number>();
  const drafts: ImportDraft[] = [];
  for (const candidate of candidates) {
    const { index, base, foreign, schedule, target, policy } = candidate;
    const entry = entries[index] as ImportEntry;
    const same = paired.get(candidate);
    let outcome: "new" | "same" | "changed" = same === undefined ? "new" : "same";
    let name = same?.name ?? base;
    const notes = [...entry.notes];
    if (same === undefined) {
      const changed = byName.get(base);
      const isChanged =
        changed !== undefined &&
        !used.has(changed.id) &&
        policy.labels.some((label) => changed.policy.labels.includes(label)) &&
        (scheduleKey(changed.schedule) === scheduleKey(schedule) || targetKey(changed.target) === targetKey(target));
      if (isChanged) {
        outcome = "changed";
        used.add(changed.id);
      } else {
        let n = nextNumber.get(base) ?? 2;
        for (; names.has(name); n++) name = `${base}-${n}`;
        nextNumber.set(base, n);
        names.add(name);
        drafts.push({ name, schedule, target, policy });
        if (!isFolder(target.cwd)) notes.push(`its folder ${target.cwd} is not there`);
        const [program] = target.argv;
        if (program.startsWith("/") && !existsSync(program)) notes.push(`${program}, which runs it, is not there`);
        if (foreign.withheld.length > 0) {
          const flags = foreign.withheld.map((one) => ` --secret ${one}=file:PATH`).join("");
          notes.push(`it lacks what was not stored: drover loop edit ${shellWord(name)}${flags}`);
        }
      }
    }
    entries[index] = { ...entry, outcome, loop: describe(name, foreign, schedule, target), notes };
  }
  return { entries, drafts };
}

/** Errors: AppError invalid for what no loop may have. */
function checked(foreign: ForeignLoop, prefix: string, hostZone: string, home: string): Omit<Candidate, "index"> {
  const { argv, shell, cwd, env, envPass, policy } = foreign;
  const schedule = draftOf(foreign.schedule, hostZone);
  const target = fit(commandTarget, { kind: "command", argv, shell, cwd: cwd ?? home, env, envPass });
  const full = fit(loopPolicy, policy);
  return { base: `${prefix}${foreign.name}`, foreign, schedule, target, policy: full };
}

function draftOf(schedule: ForeignSchedule, hostZone: string): DraftSchedule {
  switch (schedule.kind) {
    case "cron":
      return { ...schedule, zone: schedule.zone ?? hostZone };
    case "interval":
      return schedule;
    case "once":
      return { kind: "once", at: instantOf(schedule.zone ?? hostZone, schedule.localMs) };
  }
}

/** Errors: AppError invalid `bad_input`. */
function fit<T>(schema: Schema<T>, value: unknown): T {
  const { data, wrong } = readAs(schema, value);
  if (wrong === null) return data;
  throw new AppError("invalid", "bad_input", `${wrong.path.map(String).join(".")}: ${wrong.message}`);
}

const describe = (
  name: string,
  { policy, withheld }: ForeignLoop,
  schedule: DraftSchedule,
  { argv, shell, cwd, env }: CommandTarget,
): ImportedLoop => ({
  name,
  schedule: schedule.kind === "once" ? { kind: "once", at: new Date(schedule.at).toISOString() } : { ...schedule },
  argv,
  shell,
  cwd,
  env: Object.keys(env),
  withheld,
  policy: policy as Json,
});
