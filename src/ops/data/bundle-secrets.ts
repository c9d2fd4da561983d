/** What a bundle does not carry: values whose names say that they are secrets. One rule for names, `holdsSecret`. */
import { holdsSecret } from "../../core/variable-names.ts";
import type { Form } from "../declared/declared-form.ts";

/** A form without such values, and where they were. @param keys names that are a provider's keys, whatever they say */
export function withhold(
  form: Form,
  keys: readonly string[],
): { readonly form: Form; readonly withheld: readonly string[] } {
  const env = form["env"] as Readonly<Record<string, string>> | undefined;
  if (env === undefined) return { form, withheld: [] };
  const names = secretNames(env, keys);
  if (names.length === 0) return { form, withheld: [] };
  const kept = Object.fromEntries(Object.entries(env).filter(([name]) => !names.includes(name)));
  const { env: _, ...rest } = form;
  return {
    form: Object.keys(kept).length === 0 ? rest : { ...rest, env: kept },
    withheld: names.map((name) => `env.${name}`),
  };
}

export const secretNames = (env: Readonly<Record<string, string>>, keys: readonly string[]): readonly string[] =>
  Object.entries(env)
    .filter(([name, value]) => holdsSecret(name, value, keys))
    .map(([name]) => name);

const HIDDEN = "***";

/** A run without such values, wherever in it they stand: in its variables, its outputs, its messages. */
export function withoutSecrets<
  T extends { readonly run: { readonly target: { readonly env: Readonly<Record<string, string>> } } },
>(past: T, keys: readonly string[]): T {
  const { env } = past.run.target;
  const names = secretNames(env, keys);
  if (names.length === 0) return past;
  const values = names.map((name) => env[name] ?? "").filter((value) => value !== "");
  const clean = (value: unknown): unknown => {
    if (typeof value === "string") return values.reduce((text, secret) => text.replaceAll(secret, HIDDEN), value);
    if (Array.isArray(value)) return value.map(clean);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, clean(one)]));
  };
  return clean(past) as T;
}
