// @ts-check
/**
 * `npm test`: installs what it needs, PostgreSQL and the agents' command lines included, and runs every check and every
 * test but the soaks. The last line is `N passed, N failed`, `, N skipped` after it when there are any; each static part counts as one.
 */
import { installAgents } from "./agents.mjs";
import { installPackages, installPostgres, installTools } from "./install.mjs";
import { runOnOtherNodes } from "./nodes.mjs";
import { closingLine, runPart, runTests, staticParts } from "./parts.mjs";

/** Installs everything; says what is wrong and answers undefined when that cannot be done. */
function install() {
  try {
    installPackages();
    for (const tool of installTools()) console.warn(`skipped: what needs ${tool}, which cannot be installed here`);
    return installPostgres();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return undefined;
  }
}

const postgres = install();
const count = { passed: 0, failed: 0, skipped: 0 };
if (postgres === undefined) {
  count.failed = 1;
} else {
  // A part that fails does not keep the others from being seen: one run tells everything.
  for (const part of staticParts) {
    if (runPart(part)) count.passed += 1;
    else count.failed += 1;
  }
  process.env["DROVER_TEST_POSTGRES_BIN"] = postgres;
  // With this the tests of real command lines fail where they would be skipped.
  process.env["DROVER_TEST_AGENTS"] = "required";
  try {
    installAgents();
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    count.failed += 1;
  }
  for (const tests of [runTests("tests", []), runOnOtherNodes()]) {
    count.passed += tests.passed;
    count.failed += tests.failed;
    count.skipped += tests.skipped;
  }
}
console.log(closingLine(count));
if (count.failed > 0 || count.passed === 0) process.exitCode = 1;
