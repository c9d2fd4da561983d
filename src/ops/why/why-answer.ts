/** What `why` answers, and the words that its answers share. */
import { describeDuration } from "../../core/duration.ts";
import type { Instant } from "../../core/ports.ts";
import type { Json } from "../fields.ts";
import { type Remedy, remedyShape } from "../documents.ts";
import { anything, nullable, object, oneOf, type Shape, string } from "../shape.ts";

export const whyKinds = ["loop", "slot", "run", "step", "attempt", "account"] as const;

export interface Why {
  readonly thing: { readonly kind: (typeof whyKinds)[number]; readonly id: string; readonly name: string | null };
  readonly sentence: string;
  readonly status: string | null;
  readonly reason: string | null;
  /** The numbers behind the sentence. */
  readonly facts: { readonly [key: string]: Json };
  /** What mends it; null where nothing has to be mended, or time does it. */
  readonly remedy: Remedy | null;
}

export const whyShape: Shape = object({
  thing: object({ kind: oneOf(whyKinds), id: string, name: nullable(string) }),
  sentence: string,
  status: nullable(string),
  reason: nullable(string),
  facts: anything,
  remedy: remedyShape,
});

export const inTime = (at: Instant, now: Instant): string =>
  at > now ? `in ${describeDuration(at - now)}` : `${describeDuration(now - at)} ago`;
