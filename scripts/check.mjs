// @ts-check
/** `npm run check`: what is quick enough to run before every commit. Ends at the first part that fails. */
import { installPackages } from "./install.mjs";
import { closingLine, runPart, runTests, staticParts } from "./parts.mjs";

installPackages();
const count = { passed: 0, failed: 0, skipped: 0 };
for (const part of staticParts) {
  if (!runPart(part)) process.exit(1);
}
for (const [name, args] of /** @type {const} */ ([
  ["tidy", ["--project", "tidy"]],
  ["tests", ["--project", "unit", "--project", "store"]],
])) {
  const { passed, failed, skipped } = runTests(name, args, { DROVER_TEST_STORES: "sqlite" });
  count.passed += passed;
  count.failed += failed;
  count.skipped += skipped;
  if (failed > 0) break;
}
console.log(closingLine(count));
if (count.failed > 0) process.exitCode = 1;
