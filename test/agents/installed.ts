/** The real command lines, where they are installed; `npm test` installs them (scripts/agents.mjs). */
import { describe } from "vitest";
import { agentsBin, agentsMissing } from "../../scripts/agents.mjs";

/** Folder of their programs. */
export const programs = agentsBin;

const missing = agentsMissing();
if (missing !== undefined) {
  if (process.env["DROVER_TEST_AGENTS"] === "required") throw new Error(missing);
  console.warn(`skipped: ${missing}`);
}

/** A group of tests that run real command lines: skipped with the reason where there are none. */
export const describeInstalled = describe.skipIf(missing !== undefined);
