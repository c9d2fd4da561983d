import { entries } from "./scripts/entries.mjs";

/** What is reached from an entry, a script or a test is used; everything else is dead. */
export default {
  entry: [
    ...entries.map(({ source }) => source),
    "scripts/*.mjs",
    "src/**/*.{test,contract}.ts",
    "test/**/*.test.ts",
    "test/setup-*.ts",
    // Built by their path, in tests and scripts.
    "test/sim/cli.ts",
    "test/fault/kills-cli.ts",
    "test/store/*.ts",
    // In the place of vitest.
    "test/guards/suite.ts",
    "test/agents/*.mjs",
    "bench/*.{mjs,ts}",
  ],
  project: [
    "src/**/*.ts",
    "test/**/*.ts",
    "test/**/*.mjs",
    "scripts/**/*.mjs",
    "bench/**/*.{mjs,ts}",
    "!bench/peers/**",
  ],
  // The linter and its reader of types are started by name, in scripts/parts.mjs.
  ignoreDependencies: ["oxlint", "oxlint-tsgolint"],
  ignoreBinaries: [
    "apt-get",
    "groff",
    "mkfifo",
    "mount",
    "pg_dump",
    "nsenter",
    "pg_config",
    "script",
    "systemd-analyze",
    "umount",
    "unshare",
  ],
  // Types of an exported function's arguments and answer are part of it, whoever names them.
  exclude: ["types"],
  // What its own file uses is not dead, only wider open than it has to be.
  ignoreExportsUsedInFile: true,
  vitest: { config: "vitest.config.ts" },
};
