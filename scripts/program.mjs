// @ts-check
/** The parts of the program that describe themselves, for what is written from them: the reference, the contract, the man pages. */
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { root } from "./install.mjs";

/** Bundled, so that any Node can load them. */
export async function loadProgram() {
  const { build } = await import("esbuild");
  const outdir = mkdtempSync(join(root, ".cache-reference-"));
  try {
    await build({
      absWorkingDir: root,
      stdin: {
        contents: `
          export { operations } from "./src/ops/index.ts";
          export { keysOf } from "./src/ops/shape.ts";
          export { flagOf } from "./src/ops/fields.ts";
          export { findingKinds } from "./src/ops/doctor/finding-codes.ts";
          export { configSchema, declarationSchema } from "./src/ops/declared/declared-schema.ts";
          export { workflowSchema } from "./src/core/workflow/definition.ts";
          export { endTable, skippedBy } from "./src/core/step-graph.ts";
          export { readSettings } from "./src/ops/config/settings.ts";
          export { placesOf } from "./src/ops/places.ts";
          export { EXIT, EXIT_MEANINGS } from "./src/cli/exits.ts";
          export { grouped } from "./src/cli/help.ts";
          export { commandOf, pageOf } from "./src/cli/page.ts";
          export { TOPICS } from "./src/cli/topics.ts";
          export { changesBetween, contractOf, sentenceOf, textOfContract } from "./test/contract.ts";
          export { endedBy, failureClasses, runStatuses, attemptStatuses, stepStatuses } from "./src/core/run.ts";
          export { loopStatuses } from "./src/core/loop-states.ts";`,
        resolveDir: root,
        loader: "ts",
      },
      outfile: join(outdir, "program.mjs"),
      bundle: true,
      format: "esm",
      platform: "node",
      target: "node20",
      banner: { js: 'import { createRequire as __c } from "node:module"; const require = __c(import.meta.url);' },
      external: ["better-sqlite3", "pg", "pg-native"],
      logLevel: "error",
    });
    return await import(pathToFileURL(join(outdir, "program.mjs")).href);
  } finally {
    rmSync(outdir, { recursive: true, force: true });
  }
}
