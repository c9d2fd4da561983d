/** Whose fault it is and what can be done about it. Closed: every surface has one table from kind to its own status. */
export type ErrorKind = "invalid" | "not_found" | "conflict" | "unreachable" | "unauthorised" | "internal";

/** One of several things that are wrong, with its place. */
export interface Problem {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
  /** Where in the input: `loops.nightly.every`. */
  readonly path?: string;
  readonly file?: string;
  /** From 1. */
  readonly line?: number;
  readonly column?: number;
}

/** A problem without its file and line, which whoever has read the text puts to it. */
export const problem = (code: string, message: string, hint: string | undefined, path: string): Problem => ({
  code,
  message,
  ...(hint === undefined ? {} : { hint }),
  path,
});

export interface ErrorDetail {
  /** What to do about it, in one sentence. */
  readonly hint?: string;
  /** Where in the input it is: a flag, a field path, a file and line. */
  readonly path?: string;
  /** All that is wrong, where it is more than the message says. */
  readonly problems?: readonly Problem[];
  readonly cause?: unknown;
}

/** An error somebody can act on. `code` is a stable snake_case word of the reference. */
export class AppError extends Error {
  readonly kind: ErrorKind;
  readonly code: string;
  readonly hint: string | undefined;
  readonly path: string | undefined;
  readonly problems: readonly Problem[] | undefined;

  constructor(kind: ErrorKind, code: string, message: string, detail: ErrorDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = "AppError";
    this.kind = kind;
    this.code = code;
    this.hint = detail.hint;
    this.path = detail.path;
    this.problems = detail.problems;
  }
}

/** The form in which an error crosses threads, sockets and the command line. */
export interface ErrorDocument {
  readonly code: string;
  readonly kind: ErrorKind;
  readonly message: string;
  readonly hint?: string;
  readonly path?: string;
  readonly problems?: readonly Problem[];
}

export function toDocument(error: AppError): ErrorDocument {
  return {
    code: error.code,
    kind: error.kind,
    message: error.message,
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.path === undefined ? {} : { path: error.path }),
    ...(error.problems === undefined ? {} : { problems: error.problems }),
  };
}

export function fromDocument(document: ErrorDocument): AppError {
  const { kind, code, message, hint, path, problems } = document;
  return new AppError(kind, code, message, {
    ...(hint === undefined ? {} : { hint }),
    ...(path === undefined ? {} : { path }),
    ...(problems === undefined ? {} : { problems }),
  });
}

/** A broken promise of our own. It ends the operation, the run or the actor, never leaves a half-done write. */
export class BrokenAssert extends Error {
  override readonly name = "BrokenAssert";
}

export function ensure(condition: unknown, what: string): asserts condition {
  if (!condition) throw new BrokenAssert(what);
}

/** For the end of a switch over a closed list: does not compile while a case is missing. */
export function unreachable(value: never): never {
  throw new BrokenAssert(`unexpected value: ${JSON.stringify(value)}`);
}
