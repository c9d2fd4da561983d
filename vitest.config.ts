import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { guardsPlugin } from "./test/guards/sources.ts";

const tidy = ["test/tidy.test.ts", "test/house.test.ts", "test/golden.test.ts", "test/cases.test.ts"];
const guards = ["test/guards/*.test.ts"];
const store = ["src/store/**/*.{test,contract}.ts"];

/** The seeds of the simulator and the guards first: they take longest, and beside them all else runs on the other core. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = (file: TestSpecification) =>
      /[\\/](?:sim[\\/](?:seeds-\d|plants)|guards[\\/]guards)\.test\.ts$/.test(file.moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

/**
 * Five groups, by what they need: `tidy` the source text, `unit` nothing, `guards` the sources rewritten, `store` a
 * PostgreSQL cluster, `whole` that and the built program. A run of one file sets up only what its group needs.
 */
export default defineConfig({
  test: {
    pool: "forks",
    isolate: true,
    // The machines this runs on have two cores, and tests that start processes measure them.
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    allowOnly: false,
    passWithNoTests: false,
    projects: [
      { extends: true, test: { name: "tidy", include: tidy } },
      { extends: true, test: { name: "unit", include: ["src/**/*.{test,contract}.ts"], exclude: store } },
      {
        extends: true,
        plugins: [guardsPlugin()],
        test: { name: "guards", include: guards, env: { DROVER_TEST_STORES: "memory" } },
      },
      { extends: true, test: { name: "store", include: store, globalSetup: ["test/setup-postgres.ts"] } },
      {
        extends: true,
        test: {
          name: "whole",
          include: ["test/**/*.test.ts"],
          exclude: [...tidy, ...guards, "**/node_modules/**"],
          globalSetup: ["test/setup-build.ts", "test/setup-postgres.ts"],
        },
      },
    ],
    // A test that waits has a deadline of its own; these end what has none.
    testTimeout: 60_000,
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
  },
});
