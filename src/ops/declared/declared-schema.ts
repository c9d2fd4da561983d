/** JSON Schemas of the files that people write, for their editors, made from what the program itself reads them by. */
import { DURATION_PATTERN } from "../../core/duration.ts";
import { defaultLimits } from "../../core/limits.ts";
import { ACCOUNT_FORM, AGENT_FORM, LOOP_FORM } from "./declared-form.ts";
import type { Field, Json } from "../fields.ts";
import { CAPS } from "../config/settings.ts";

type Schema = { readonly [key: string]: Json };

const DRAFT = "https://json-schema.org/draft/2020-12/schema";
const SIZE = "^\\d+([kKMGT]i?)?[Bb]?$";

const words: Schema = { type: "array", items: { type: "string" }, minItems: 1 };

function valueSchema(field: Field<unknown>): Schema {
  const isDuration = field.written === "text" && field.schema["type"] === "integer";
  if (isDuration) return { type: "string", pattern: DURATION_PATTERN };
  return field.written === "text" ? { type: "string" } : field.schema;
}

function levelSchema(
  form: ReadonlyMap<string, readonly [key: string, field: Field<unknown>]>,
  more: { readonly [key: string]: Schema } = {},
): { readonly [key: string]: Json } {
  const properties: { [key: string]: Json } = {};
  for (const [word, [, field]] of form) {
    if (field.later) continue;
    const usual = field.fallback === null ? "" : ` Usually: ${field.fallback}.`;
    const about = `${field.about.charAt(0).toUpperCase()}${field.about.slice(1)}.${usual}`;
    properties[word] = { description: about, ...valueSchema(field) };
  }
  return { type: "object", properties: { ...properties, ...more }, additionalProperties: false };
}

/** A word that is `false` is as good as left out. */
const exactlyOne = (keys: readonly string[]): Schema => ({
  oneOf: keys.map((key) => ({ properties: { [key]: { not: { const: false } } }, required: [key] })),
});

/** Of `drover.yaml`. What a schema cannot say (a cron expression, a program that is there) `drover apply --dry-run` says. */
export function declarationSchema(): Schema {
  const agent = {
    description: "An agent to run, instead of a command.",
    ...levelSchema(AGENT_FORM, {
      command: { description: "Of a custom agent: its program and the arguments.", ...words },
    }),
    required: ["provider"],
    ...exactlyOne(["prompt", "promptFile"]),
  };
  const loop = {
    ...levelSchema(LOOP_FORM, { agent }),
    allOf: [exactlyOne(["every", "cron", "at", "dynamic"]), exactlyOne(["command", "shell", "workflow", "agent"])],
  };
  return {
    $schema: DRAFT,
    $id: "urn:drover:schema:drover.yaml:1",
    title: "drover.yaml",
    description: "Loops, accounts and limits, for `drover apply`.",
    type: "object",
    properties: {
      version: { description: "The version of this form.", const: 1 },
      loops: {
        description: "Loops by their names.",
        type: "object",
        additionalProperties: loop,
      },
      accounts: {
        description: "Accounts as PROVIDER:NAME. Log each in with `drover account login`.",
        type: "object",
        additionalProperties: { anyOf: [levelSchema(ACCOUNT_FORM), { type: "null" }] },
      },
      limits: {
        description: "How much of a resource may be used at a time: account:PROVIDER:NAME, provider:NAME, folder:PATH.",
        type: "object",
        additionalProperties: { type: "integer", minimum: 0, maximum: 1_000_000 },
      },
    },
    required: ["version"],
    additionalProperties: false,
  };
}

/** Of `config.yaml`. */
export function configSchema(): Schema {
  const limit = (name: string): Schema => ({
    type: ["integer", "string"],
    minimum: 0,
    ...(name.endsWith("Ms") ? { pattern: DURATION_PATTERN } : name.endsWith("Bytes") ? { pattern: SIZE } : {}),
  });
  const names = Object.keys(defaultLimits);
  return {
    $schema: DRAFT,
    $id: "urn:drover:schema:config.yaml:1",
    title: "config.yaml",
    description: "Settings of drover. `drover config show` prints each with its source.",
    type: "object",
    properties: {
      store: { description: "sqlite:FILE or postgres://...", type: "string" },
      caps: {
        description: "Runs at work on this host at a time.",
        type: "object",
        properties: Object.fromEntries(Object.keys(CAPS).map((name) => [name, { type: "integer", minimum: 0 }])),
        additionalProperties: false,
      },
      limits: {
        description: "Every other limit, with its unit in its name.",
        type: "object",
        properties: Object.fromEntries(names.map((name) => [name, limit(name)])),
        additionalProperties: false,
      },
    },
    additionalProperties: false,
  };
}
