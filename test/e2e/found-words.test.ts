/** What the command line takes and says, as a newcomer met it. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome } from "./drover.ts";

let home: Home;
beforeAll(() => {
  home = openHome({ prefix: "drover-found-words-" });
  mkdirSync(join(home.folder, "bin"));
});
afterAll(() => home.close());

/** An agent of a few lines of shell; answers its path. */
function agent(name: string, text: string): string {
  const file = join(home.folder, name);
  writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

describe("what is typed", () => {
  test.each(["--help", "-h", "--json", "--", "--prompt"])("%s is a prompt like any other", async (prompt) => {
    const says = agent("says.sh", "cat");
    const words = ["run", "--agent", "custom", "--agent-command", says];
    for (const given of [["--prompt", prompt], [`--prompt=${prompt}`]])
      expect(await home.run([...words, ...given])).toMatchObject({ status: 0, out: prompt });
  });

  test("help is shown where other words are wrong, an error is a document only where that was asked for", async () => {
    expect(await home.run(["run", "--bogus", "--help"])).toMatchObject({ status: 0, err: "" });
    const { status, err } = await home.run(["cancel", "run_none", "--reason", "--json"]);
    expect([status, err]).toEqual([3, expect.stringMatching(/^drover: /)]);
  });
});
