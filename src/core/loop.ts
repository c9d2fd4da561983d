import { z } from "zod";
import { LABEL_RULE, labelPattern } from "./label.ts";
import { defaultLimits } from "./limits.ts";

const durationMs = z
  .int()
  .min(0)
  .max(3_650 * 86_400_000);
const positiveMs = z
  .int()
  .min(1)
  .max(3_650 * 86_400_000);
const hook = z.string().min(1, "a hook is empty").max(65_536, "a hook has at most 65536 characters").nullable();

/** A label: what people filter by. */
export const label = z.string().trim().toLowerCase().regex(labelPattern, LABEL_RULE);

/** How one run behaves, whatever started it. */
export const runPolicy = z.strictObject({
  attempts: z.int().min(1).max(1_000).default(1),
  /** First pause before another try; doubles each time up to an hour, with jitter from 0.5 to 1.5. */
  backoffMs: durationMs.default(60_000),
  timeoutMs: positiveMs.nullable().default(null),
  idleTimeoutMs: positiveMs.nullable().default(null),
  graceMs: durationMs.default(10_000),
  priority: z.int().min(-1_000).max(1_000).default(0),
  onLost: z.enum(["auto", "retry", "fail"]).default("auto"),
  onFinish: hook.default(null),
  onFailure: hook.default(null),
  hookTimeoutMs: positiveMs.default(defaultLimits.hookTimeoutMs),
  labels: z.array(label).max(32, "there are at most 32 labels").default([]),
});

/** What a loop decides beside its runs' behaviour. */
export const loopPolicy = runPolicy.extend({
  catchUp: z.enum(["latest", "all", "none"]).default("latest"),
  catchUpLimit: z.int().min(1).max(1_000).default(50),
  overlap: z.enum(["skip", "queue", "allow", "cancel"]).default("skip"),
  queueLimit: z.int().min(1).max(10_000).default(100),
  /** Each start is put off by a part of this that is always the same for the same slot. */
  jitterMs: durationMs.default(0),
  expiresAt: z.int().nullable().default(null),
  /** The loop expires after that many successes in a row. */
  expiresAfterRuns: z.int().min(1).nullable().default(null),
  /** Equal failures in a row that pause the loop; 0 never does. */
  breaker: z.int().min(0).default(5),
});

export type RunPolicy = z.infer<typeof runPolicy>;
export type LoopPolicy = z.infer<typeof loopPolicy>;

export const loopName = z
  .string()
  .min(1, "a name is empty")
  .regex(
    /^[\p{L}\p{N}](?:[\p{L}\p{N} ._:@/+-]*[\p{L}\p{N}._+-])?$/u,
    "a name begins with a letter or digit and holds letters, digits, spaces and . _ : @ / + -",
  )
  .max(100, "a name has at most 100 characters")
  .refine((name) => !/^(loop|run|step|att|host)_[0-9a-z]{26}$/.test(name), {
    error: "a name must not look like an id",
  });
