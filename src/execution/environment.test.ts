import { describe, expect, test } from "vitest";
import { AppError } from "../core/errors.ts";
import { completePath, composeEnvironment, MAX_WORD_BYTES, requireLaunchable, valuesToScrub } from "./environment.ts";

const none = { env: {}, envPass: [] };
const compose = (over: Partial<Parameters<typeof composeEnvironment>[0]>) =>
  composeEnvironment({ daemon: {}, target: none, secrets: {}, variables: {}, ...over });

describe("composeEnvironment", () => {
  test("B-122 a child gets the allow-list and nothing else of the daemon's environment", () => {
    const allowed = {
      HOME: "/h",
      USER: "u",
      LOGNAME: "u",
      SHELL: "/bin/sh",
      LANG: "C",
      LC_TIME: "C",
      TZ: "UTC",
      TMPDIR: "/t",
      XDG_RUNTIME_DIR: "/r",
      SSH_AUTH_SOCK: "/s",
      https_proxy: "p",
      NO_PROXY: "n",
    };
    const { PATH: _path, ...got } = compose({
      daemon: { ...allowed, FAKE_TOKEN: "sk-test-123", ANTHROPIC_API_KEY: "k", LD_PRELOAD: "x", NODE_OPTIONS: "y" },
    });
    expect(got).toEqual(allowed);
  });

  test("names passed on, own variables, secrets and drover's come over one another in this order", () => {
    const got = compose({
      daemon: { A: "daemon", B: "daemon", HOME: "/h" },
      target: { env: { A: "own", HOME: "/own" }, envPass: ["A", "B", "NOT_THERE"] },
      secrets: { S: "secret", B: "secret" },
      variables: { DROVER_RUN_ID: "run_1" },
    });
    expect(got).toMatchObject({ A: "own", B: "secret", HOME: "/own", S: "secret", DROVER_RUN_ID: "run_1" });
    expect(got).not.toHaveProperty("NOT_THERE");
  });

  test("B-037 a variable over the kernel's limit is refused by name, one at the limit is not", () => {
    const value = "x".repeat(MAX_WORD_BYTES - "BIG=".length);
    expect(compose({ target: { env: { BIG: value }, envPass: [] } })["BIG"]).toBe(value);
    expect(() => compose({ target: { env: { BIG: `${value}x` }, envPass: [] } })).toThrow(
      expect.objectContaining({ code: "env_invalid", kind: "invalid", path: "env.BIG" }),
    );
  });

  test.each(["IFS", "OPTIND", "PWD", "BASH_ARGV0", "_", "PS4"])("%s, which no shell passes on, is refused", (name) => {
    expect(() => compose({ target: { env: { [name]: "x" }, envPass: [] } })).toThrow(AppError);
  });
});

describe("completePath", () => {
  test("usual folders that exist are appended once; empty parts go", () => {
    const exists = (folder: string) => ["/h/.local/bin", "/h/.bun/bin", "/usr/bin", "/bin"].includes(folder);
    expect(completePath("/mine::/usr/bin:/mine", "/h", undefined, exists)).toBe(
      "/mine:/usr/bin:/h/.local/bin:/h/.bun/bin:/bin",
    );
    expect(completePath("", "/h", undefined, exists)).toBe("/h/.local/bin:/h/.bun/bin:/usr/bin:/bin");
  });
});

describe("requireLaunchable", () => {
  test("B-037 arguments over the limit, together or alone, are refused", () => {
    expect(() => requireLaunchable(["a", "x".repeat(MAX_WORD_BYTES)], {})).not.toThrow();
    expect(() => requireLaunchable(["a", "x".repeat(MAX_WORD_BYTES + 1)], {})).toThrow(
      expect.objectContaining({ code: "env_invalid", path: "argv.1" }),
    );
    expect(() => requireLaunchable(["a", ...Array.from({ length: 40 }, () => "x".repeat(100_000))], {})).toThrow(
      /together/,
    );
  });

  test("B-033 NUL is refused with a plain message", () => {
    expect(() => requireLaunchable(["a", "b\0c"], {})).toThrow(/NUL/);
  });

  test("B-035 a command named like an option is refused; arguments may begin as they like", () => {
    expect(() => requireLaunchable(["-x"], {})).toThrow(/dash/);
    expect(() => requireLaunchable(["cat", "- do x", "--help", "---\ntitle", "-"], {})).not.toThrow();
  });
});

test("values to scrub are the secrets, the run token, and long values under a name that says so", () => {
  const values = valuesToScrub({
    daemon: { GITHUB_TOKEN: "ghp_0123456789", EDITOR: "an-editor-of-mine" },
    target: {
      env: { API_KEY: "key-0123456789", TOKEN: "yes", PLAIN: "plain-0123456789" },
      envPass: ["GITHUB_TOKEN", "EDITOR"],
    },
    secrets: { S: "s3cr" },
    variables: { DROVER_RUN_TOKEN: "token-0123456789", DROVER_RUN_ID: "run_0123456789" },
  });
  expect(values.toSorted()).toEqual(["ghp_0123456789", "key-0123456789", "s3cr", "token-0123456789"]);
});
