/** What the world needs of a store, be it one in memory or a server: calls that are watched, and looks beside them. */
import type { Operation, Steps } from "../../src/store/operation.ts";
import type { Context } from "./time.ts";

export type AnyOperation = Operation<never, unknown>;

/** A call of an operation by a daemon, or by a person when there is no context. */
export interface Call {
  readonly entry: AnyOperation;
  readonly input: unknown;
  readonly context: Context | null;
}

/** A call that has been made. */
export interface Called extends Call {
  /** What `before` found. */
  readonly found: unknown;
  /** Null when it failed, or crashed on the way. */
  readonly answer: unknown;
  readonly failed: boolean;
}

/** Looks at each change in the same step of the world in which it is made. */
export interface Watcher {
  /** Looks at what a call is about to change, as it is just before; null when there is nothing to look for. */
  before(call: Call): Steps<unknown> | null;
  /**
   * Looks at what calls have left that were committed together; `changed` is false when no row was written. Their events are
   * those with a higher id than all before, or those that are named: on a server a lower id may be committed later.
   */
  after(calls: readonly Called[], changed: boolean, events?: readonly number[]): Steps<void>;
}

export interface SimStore {
  /** Resolves with the operation's answer, or never when its caller is dead by then. */
  call(call: Call): Promise<unknown>;
  /** Looks at the state now; in memory at once, on a server before time moves on. */
  look<T>(steps: Steps<T>): Promise<T>;
  /** What is still out and keeps time from moving on; null when nothing is. */
  busy(): Promise<void> | null;
  close(): Promise<void>;
}
