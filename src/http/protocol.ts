/** What the daemon's socket speaks: HTTP and JSON. Client and server share this page. */
import type { ErrorKind } from "../core/errors.ts";

export const API = "/api/v1";
/** The name that requests over the socket go to; any other `Host` is not meant for us. */
export const HOST = "drover";

export const HEADERS = {
  version: "drover-version",
  runToken: "drover-run-token",
  /** The caller's environment says that it is part of a run. */
  runId: "drover-run-id",
} as const;

/** Bodies beyond this are refused before they are read to their end: the largest prompt in base64, and what goes with it. */
export const MAX_BODY_BYTES = 24 * 1024 * 1024;

/** One status for each kind, so that the kind can be told from the status. */
export const STATUS_OF: { readonly [K in ErrorKind]: number } = {
  invalid: 400,
  unauthorised: 403,
  not_found: 404,
  conflict: 409,
  internal: 500,
  unreachable: 503,
};

/** Versions that understand each other's requests: the same major and minor. */
export const isCompatible = (a: string, b: string): boolean =>
  a.split(".").slice(0, 2).join(".") === b.split(".").slice(0, 2).join(".");
