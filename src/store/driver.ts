/** What every driver offers to the composition root. */
import { randomBytes } from "node:crypto";
import type { AppError } from "../core/errors.ts";
import { makeId } from "../core/ids.ts";
import type { IdKind } from "../core/ids.ts";
import type { OperationTable, StoreOf } from "./operation.ts";

/** Mints the id of a new thing at an instant. */
export type MintId = (kind: IdKind, at: number) => string;

/** Ids of products: their chance is the system's. */
export const mintId: MintId = (kind, at) => makeId(kind, at, randomBytes(10));

export interface HeartbeatOptions {
  /** The operation to run, `hosts.renew`, and its input. */
  readonly operation: string;
  readonly input: unknown;
  readonly everyMs: number;
  /** When the main thread has not called `beat` for this long, renewing stops and the process is ended. */
  readonly patienceMs?: number;
  /** Each answer of the operation. */
  readonly onAnswer?: (answer: unknown) => void;
  /** A renewal failed; the next one is tried as usual. */
  readonly onError?: (error: Error) => void;
}

/** Two minutes: longer than any stall that a working main thread was seen to have, shorter than a takeover. */
export const HEARTBEAT_PATIENCE_MS = 120_000;

export interface Heartbeat {
  /**
   * Says that the main thread answers. `live`: whether this host has attempts at work; on SQLite a host without any
   * renews nothing, so that a host at rest writes nothing.
   */
  beat(live: boolean): void;
  stop(): Promise<void>;
}

/** An open store. */
export interface StoreHandle<Table extends OperationTable> {
  readonly kind: "sqlite" | "postgres";
  /** For people: the file, or the address without its password. */
  readonly location: string;
  readonly store: StoreOf<Table>;
  /** Migrations that this opening applied. */
  readonly applied: readonly number[];
  /** Calls back when another process changed the store; a wake-up, never evidence, and it may come once too often. Answers how to stop. */
  onForeignChange(listener: () => void): () => void;
  /** Calls back when the store can no longer be used by this process: take no new work. */
  onFailure(listener: (error: AppError) => void): void;
  /** Renews from a thread of its own, so that a busy main thread loses no lease. One at a time. */
  startHeartbeat(options: HeartbeatOptions): Heartbeat;
  /** Waits for what was asked, then lets go of everything. */
  close(): Promise<void>;
}
