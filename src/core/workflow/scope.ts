/** What an expression of a definition may read: where it stands, and what is there. */
import { type JsonSchema, typesOf } from "../json-schema.ts";
import { nearest } from "../nearest.ts";
import { finalStatuses } from "../run.ts";
import type { Reference, Scope } from "./expression.ts";
import { kindOf } from "./expression-fault.ts";
import { ancestryOf } from "./graph.ts";

/** Words that are looked for among very many: each look costs as much as there are. */
const MOST_NEAR = 20;
/** Names that are listed in a hint. */
const SHOWN_NAMES = 20;

/** Says what a word may have meant. Among many, only the first ones are looked for. */
export function nearHints() {
  let left = MOST_NEAR;
  return {
    hint(word: string, known: readonly string[], these: string): string {
      if (known.length === 0) return "There are none.";
      const isMany = known.length > SHOWN_NAMES;
      const near = isMany && left-- <= 0 ? null : nearest(word, known);
      if (near !== null) return `Did you mean ${near}?`;
      return `${these} ${known.slice(0, SHOWN_NAMES).join(", ")}${isMany ? ", and others" : ""}.`;
    },
  };
}

/** What an expression reads of a step, beside `output`. */
const STEP_FIELDS: { readonly [field: string]: JsonSchema } = {
  status: { type: "string", enum: finalStatuses },
  exitCode: { type: "integer" },
  stdoutTail: { type: "string" },
  stderrTail: { type: "string" },
};
const STEP_WORDS = ["output", ...Object.keys(STEP_FIELDS)];
/** What it reads of the run. */
const RUN_FIELDS: { readonly [field: string]: JsonSchema } = {
  id: { type: "string" },
  workflow: { type: "string" },
  loop: {},
  slot: {},
};

/** What there is in a definition to be read. */
export interface Sight {
  readonly ids: ReadonlyMap<string, number>;
  readonly idNames: readonly string[];
  readonly near: ReturnType<typeof nearHints>;
  readonly inputs: ReadonlyMap<string, JsonSchema>;
  readonly env: readonly string[];
  readonly outputs: readonly JsonSchema[];
  /** Made for the first expression that reads a step. */
  ancestry: ReturnType<typeof ancestryOf> | null;
  readonly needs: readonly (readonly number[])[];
  readonly order: readonly number[];
}

/** Where an expression stands. `item`: null where there is none. */
export interface Standing {
  readonly step: number;
  readonly id: string;
  readonly item: JsonSchema | null;
}

type Found = ReturnType<Scope["typeOf"]>;
const unknown = (message: string, hint: string, code = "unknown_name"): Found => ({ fault: { code, message, hint } });

/** What is at a place within a value of a schema; a step further at a time. */
function within(sight: Sight, schema: JsonSchema, path: readonly string[], what: string): Found {
  let at: JsonSchema = schema;
  let said = what;
  for (const name of path) {
    if (typeof at === "boolean") return { schema: true };
    const types = typesOf(at);
    if (types !== null && !types.includes("object"))
      return unknown(
        `${said} is ${kindOf(
          types
            .join(" or ")
            .replaceAll("boolean", "bool")
            .replaceAll(/integer|number/g, "double"),
        )}, and has no ${name}`,
        "Read it as it is.",
      );
    const properties = (at["properties"] ?? {}) as { readonly [name: string]: JsonSchema };
    if (Object.hasOwn(properties, name)) at = properties[name] ?? true;
    else if (at["additionalProperties"] === false)
      return unknown(
        `${said} has no ${JSON.stringify(name)}`,
        sight.near.hint(name, Object.keys(properties), "It has"),
      );
    else at = (at["additionalProperties"] ?? true) as JsonSchema;
    said += `.${name}`;
  }
  return { schema: at };
}

/** @param standing null: in what holds for the whole workflow */
export function scopeOf(sight: Sight, standing: Standing | null): Scope {
  const typeOf = (reference: Reference): Found => {
    const { root, path } = reference;
    const [name, field, ...more] = path;
    switch (root) {
      case "inputs": {
        if (name === undefined) return { schema: { type: "object" } };
        const schema = sight.inputs.get(name);
        if (schema !== undefined) return within(sight, schema, path.slice(1), `inputs.${name}`);
        return unknown(
          `there is no input ${JSON.stringify(name)}`,
          sight.inputs.size === 0
            ? `Declare it: inputs: { ${name}: { type: string } }.`
            : sight.near.hint(name, [...sight.inputs.keys()], "Inputs are"),
          "unknown_input",
        );
      }
      case "run":
        if (name === undefined) return { schema: { type: "object" } };
        if (Object.hasOwn(RUN_FIELDS, name))
          return within(sight, RUN_FIELDS[name] ?? true, path.slice(1), `run.${name}`);
        return unknown(
          `a run has no ${JSON.stringify(name)}`,
          sight.near.hint(name, Object.keys(RUN_FIELDS), "It has"),
        );
      case "env":
        if (name === undefined) return { schema: { type: "object", additionalProperties: { type: "string" } } };
        if (standing === null) return unknown("env is not read in env itself", "Read inputs or run.");
        if (sight.env.includes(name)) return within(sight, { type: "string" }, path.slice(1), `env.${name}`);
        return unknown(`the workflow's env has no ${JSON.stringify(name)}`, sight.near.hint(name, sight.env, "It has"));
      case "vars":
        return unknown("variables are read where a template is rendered", "Read inputs.");
      case "item":
        if (standing === null || standing.item === null)
          return unknown("there is an item only in a step with foreach", "Give the step a list: foreach: ${{ ... }}.");
        return within(sight, standing.item, path, "item");
      case "steps":
        if (standing === null)
          return unknown("steps are read in steps only", "Give the value to each step that needs it.");
        return name === undefined
          ? unknown("a step is named by its id", 'As in steps.check.output, or steps["my-check"].output.')
          : ofStep(name, field, more, standing);
    }
  };
  const ofStep = (name: string, field: string | undefined, more: readonly string[], standing: Standing): Found => {
    const of = sight.ids.get(name);
    const dashed =
      of !== undefined || sight.idNames.length > SHOWN_NAMES
        ? undefined
        : sight.idNames.find((id) => id.includes("-") && id.startsWith(`${name}-`));
    if (of === undefined)
      return unknown(
        `there is no step ${JSON.stringify(name)}`,
        dashed === undefined
          ? sight.near.hint(name, sight.idNames, "Steps are")
          : `An id with - in it is read as steps["${dashed}"].`,
        "missing_step",
      );
    sight.ancestry ??= ancestryOf(sight.needs, sight.order);
    if (of === standing.step)
      return unknown(`the step ${name} cannot read itself`, "Read a step that it needs.", "not_needed");
    if (!sight.ancestry.has(standing.step, of))
      return unknown(
        `the step ${standing.id} reads ${name}, and does not need it`,
        `Add ${name} to its needs.`,
        "not_needed",
      );
    if (field === undefined) return { schema: { type: "object" } };
    if (field === "output") return within(sight, sight.outputs[of] ?? true, more, `steps.${name}.output`);
    const schema = Object.hasOwn(STEP_FIELDS, field) ? STEP_FIELDS[field] : undefined;
    return schema === undefined
      ? unknown(
          `a step has no ${JSON.stringify(field)}`,
          nearest(field, STEP_WORDS) === null
            ? `It has ${STEP_WORDS.join(", ")}; what it hands over is below output.`
            : `Did you mean ${nearest(field, STEP_WORDS)}?`,
        )
      : within(sight, schema, more, `steps.${name}.${field}`);
  };
  return { typeOf };
}
