import fc from "fast-check";
import { expect, test } from "vitest";
import { withhold, withoutSecrets } from "./bundle-secrets.ts";

const run = (env: Readonly<Record<string, string>>, more: object) => ({ run: { target: { env }, ...more } });
/** Letters that nothing else is written with, so that no part of a value is there by chance. */
const letters = fc.string({ unit: fc.constantFrom(..."GHJKPQVWXZ"), minLength: 16, maxLength: 30 });
const value = fc
  .tuple(letters, fc.constantFrom("", '"', "\\", "\n", "é", "/"), letters)
  .map(([before, special, after]) => `${before}${special}${after}`);

test("B-122 no part of a value that its name calls a secret is in a bundle, whatever text it stands in and wherever that is cut", () => {
  fc.assert(
    fc.property(value, value, fc.nat(80), fc.boolean(), fc.boolean(), (one, other, at, isEnd, nests) => {
      // One holds the other.
      const env = { API_TOKEN: one, PASSWORD: nests ? `${one}${other}` : other, MODE: "fast" };
      const said = `${env.PASSWORD} and ${one}`;
      const place = Math.min(at, said.length - 1);
      const cut = isEnd ? said.slice(0, place) : said.slice(place);
      const past = run(env, {
        output: JSON.stringify({ said, [one]: said, deep: JSON.stringify([said]) }),
        error: { class: "exit", message: said },
        tail: `${cut}\n${said.slice(place)}`,
        attempts: [{ message: said.slice(0, place) }],
      });
      const text = JSON.stringify(withoutSecrets(past, []));
      const shown = `${text} ${text.replaceAll("\\", "")}`;
      for (const secret of [one, other])
        for (const part of secret.split(/[^GHJKPQVWXZ]/))
          for (let from = 0; from + 12 <= part.length; from++)
            expect(shown.includes(part.slice(from, from + 12)), `${part.slice(from)} in ${shown}`).toBe(false);
      expect(text).toContain('"MODE":"fast"');
    }),
    { numRuns: 150 },
  );
});

test("a run without such values is as it was", () => {
  const past = run({ MODE: "fast", TOKEN: "yes" }, { output: "yes" });
  expect(withoutSecrets(past, [])).toBe(past);
});

test("B-122 inputs of a workflow that their names call secrets are in no bundle either, of a run nor of a loop", () => {
  const inputs = {
    api_token: "canary-one-4f7a",
    logins: "no name of a secret",
    access_keys: ["canary-two-81be", { of: "canary-six-90cc" }],
  };
  const past = { run: { target: { env: {}, inputs }, output: "canary-one-4f7a canary-two-81be canary-six-90cc" } };
  const text = JSON.stringify(withoutSecrets(past, []));
  for (const canary of ["canary-one-4f7a", "canary-two-81be", "canary-six-90cc"]) expect(text).not.toContain(canary);
  expect(text).toContain("no name of a secret");
  const form = { workflow: "a.yaml", env: { MODE: "fast" }, inputs: { api_token: "canary-one-4f7a", branch: "main" } };
  expect(withhold(form, [])).toEqual({
    form: { workflow: "a.yaml", env: { MODE: "fast" }, inputs: { branch: "main" } },
    withheld: ["inputs.api_token"],
  });
  expect(withhold({ ...form, inputs: { api_token: "canary-one-4f7a" } }, []).form).not.toHaveProperty("inputs");
});
