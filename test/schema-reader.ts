/** JSON Schemas that we publish, as an editor reads them. */

export type Schema = { readonly [key: string]: unknown };
const ABOUT = ["$schema", "$id", "title", "description"];

/** What is wrong by the schema; a small reader of the words that ours use, which knows no other. */
export function faults(schema: Schema, value: unknown, path = ""): string[] {
  const is = (type: unknown): boolean =>
    type === "array"
      ? Array.isArray(value)
      : type === "object"
        ? typeof value === "object" && value !== null && !Array.isArray(value)
        : type === "integer"
          ? Number.isInteger(value)
          : type === "null"
            ? value === null
            : typeof value === type;
  const object = is("object") ? (value as Record<string, unknown>) : null;
  const found: string[] = [];
  const properties = (schema["properties"] ?? {}) as Record<string, Schema>;
  for (const [word, of] of Object.entries(schema)) {
    switch (word) {
      case "type":
        if (![of].flat().some(is)) found.push(`${path} type`);
        break;
      case "const":
        if (value !== of) found.push(`${path} const`);
        break;
      case "enum":
        if (!(of as unknown[]).includes(value)) found.push(`${path} enum`);
        break;
      case "pattern":
        if (typeof value === "string" && !new RegExp(of as string, "u").test(value)) found.push(`${path} pattern`);
        break;
      case "minimum":
        if (typeof value === "number" && value < (of as number)) found.push(`${path} minimum`);
        break;
      case "maximum":
        if (typeof value === "number" && value > (of as number)) found.push(`${path} maximum`);
        break;
      case "minLength":
        if (typeof value === "string" && value.length < (of as number)) found.push(`${path} minLength`);
        break;
      case "maxLength":
        if (typeof value === "string" && value.length > (of as number)) found.push(`${path} maxLength`);
        break;
      case "maxItems":
        if (Array.isArray(value) && value.length > (of as number)) found.push(`${path} maxItems`);
        break;
      case "prefixItems":
        if (Array.isArray(value))
          for (const [i, one] of (of as Schema[]).entries())
            if (i < value.length) found.push(...faults(one, value[i], `${path}[${i}]`));
        break;
      case "propertyNames":
        for (const key of Object.keys(object ?? {})) found.push(...faults(of as Schema, key, `${path}.${key}`));
        break;
      case "minItems":
        if (Array.isArray(value) && value.length < (of as number)) found.push(`${path} minItems`);
        break;
      case "items":
        if (Array.isArray(value))
          for (const [i, one] of value.entries())
            if (i >= ((schema["prefixItems"] ?? []) as Schema[]).length)
              found.push(...faults(of as Schema, one, `${path}[${i}]`));
        break;
      case "properties":
        for (const [key, inner] of Object.entries(properties))
          if (object !== null && Object.hasOwn(object, key))
            found.push(...faults(inner, object[key], `${path}.${key}`));
        break;
      case "additionalProperties":
        for (const key of Object.keys(object ?? {})) {
          if (Object.hasOwn(properties, key)) continue;
          if (of === false) found.push(`${path}.${key} additionalProperties`);
          else found.push(...faults(of as Schema, object?.[key], `${path}.${key}`));
        }
        break;
      case "required":
        for (const key of of as string[])
          if (object !== null && !Object.hasOwn(object, key)) found.push(`${path} required`);
        break;
      case "oneOf":
        if ((of as Schema[]).filter((one) => faults(one, value, path).length === 0).length !== 1)
          found.push(`${path} oneOf`);
        break;
      case "not":
        if (faults(of as Schema, value, path).length === 0) found.push(`${path} not`);
        break;
      case "anyOf":
        if ((of as Schema[]).every((one) => faults(one, value, path).length > 0)) found.push(`${path} anyOf`);
        break;
      case "allOf":
        for (const one of of as Schema[]) found.push(...faults(one, value, path));
        break;
      default:
        if (!ABOUT.includes(word)) throw new Error(`the test does not read ${word}`);
    }
  }
  return found;
}
