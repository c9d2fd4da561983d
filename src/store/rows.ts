/** Rows of the store as the records of core: snake_case to camelCase, documents parsed, truths from 0 and 1. */
import type {
  AccountRecord,
  AttemptRecord,
  EventRecord,
  HoldRecord,
  HostRecord,
  LoopRecord,
  RunRecord,
  StepRecord,
  WorktreeRecord,
} from "../core/records.ts";

/** A row as a driver gives it. */
export type Row = Readonly<Record<string, string | number | null>>;

/** What rows hold beside the record: for decisions inside the store only. */
interface Numbered {
  readonly eventNumber: number;
}
export type LoopRow = LoopRecord & Numbered & { readonly wakeAt: number | null; readonly expiresAt: number | null };
export type RunRow = RunRecord &
  Numbered & {
    readonly chained: boolean;
    readonly waitsTurn: boolean;
    readonly cancelSuperseded: boolean;
    /** JSON list of hook names. */
    readonly hooksDue: string | null;
    readonly definitionDigest: string;
  };
/** `accountId`: of an agent, the account that its last attempt had. */
export type StepRow = StepRecord & {
  readonly accountId: string | null;
  readonly sessionRef: string | null;
  readonly lostEnds: number;
  /** Of the steps that it needs, those that have not succeeded. */
  readonly needsLeft: number;
};
export type AttemptRow = AttemptRecord;
export type HostRow = HostRecord & Numbered;
export type AccountRow = AccountRecord & Numbered;

const camelName = (column: string): string =>
  column.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** How a column becomes a key: its name in code, and what its value is read as. */
interface Reading {
  readonly name: string;
  readonly as: "plain" | "json" | "truth";
}

function mapper<Mapped>(documents: readonly string[], truths: readonly string[]): (row: Row) => Mapped {
  const readings = new Map<string, Reading>();
  const readingOf = (column: string): Reading => {
    const known = readings.get(column);
    if (known !== undefined) return known;
    const as = documents.includes(column) ? "json" : truths.includes(column) ? "truth" : "plain";
    const reading: Reading = { name: camelName(column), as };
    readings.set(column, reading);
    return reading;
  };
  return (row) => {
    const mapped: Record<string, unknown> = {};
    // Rows of the drivers are plain objects of their columns: nothing is inherited.
    for (const column in row) {
      const value = row[column] as string | number | null;
      const { name, as } = readingOf(column);
      mapped[name] =
        value === null || as === "plain" ? value : as === "json" ? JSON.parse(value as string) : value !== 0;
    }
    return mapped as Mapped;
  };
}

export const toLoop = mapper<LoopRow>(["schedule", "target", "policy"], []);
export const toRun = mapper<RunRow>(["target", "policy", "error"], ["chained", "waits_turn", "cancel_superseded"]);
/** Of a run what a write under an attempt's token looks at: its documents are not read for that. */
export const toHeldRun = mapper<Pick<RunRow, "id" | "eventNumber" | "cancelRequestedAt">>([], []);
export const toStep = mapper<StepRow>(["spec", "result"], ["continue_on_failure"]);
/** What the end of a run needs to know of a step. */
export type StepState = Pick<
  StepRow,
  | "id"
  | "runId"
  | "key"
  | "status"
  | "reason"
  | "wakeAt"
  | "needsLeft"
  | "condition"
  | "continueOnFailure"
  | "parentStepId"
>;
export const toStepState = mapper<StepState>([], ["continue_on_failure"]);
export const toAttempt = mapper<AttemptRow>([], ["counted", "adopted"]);
export const toHost = mapper<HostRow>([], []);
export const toAccount = mapper<AccountRow>(["env", "secrets"], ["enabled"]);
export const toHold = mapper<HoldRecord>([], []);
export const toWorktree = mapper<WorktreeRecord>(["escaped"], []);

export const toEvent = (row: Row): EventRecord => ({
  cursor: String(row["cursor"]),
  subjectKind: row["subject_kind"] as EventRecord["subjectKind"],
  subjectId: row["subject_id"] as string,
  number: row["number"] as number,
  type: row["type"] as string,
  token: row["token"] as number | null,
  data: JSON.parse(row["data"] as string) as Record<string, unknown>,
  at: row["created_at"] as number,
});
