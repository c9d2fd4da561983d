/** Which sources are read for guards, and which suites have to miss them. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { findGuards, type Guarded } from "./find.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

const isSource = (name: string): boolean => name.endsWith(".ts") && !/(?:^|\.)(?:test|contract)\.ts$/.test(name);

/** Sources with guards by their path below `src`: all of core, and what says statements in the store. */
export function guardedSources(): ReadonlyMap<string, Guarded> {
  const files = ["core", "store"].flatMap((folder) =>
    readdirSync(join(root, "src", folder))
      .filter(isSource)
      .map((name) => `${folder}/${name}`),
  );
  const found = files.map((file) => [file, read(file)] as const);
  return new Map(found.filter(([, { guards }]) => guards.length > 0));
}

/** What is no place of guards: the language of statements itself, and what the migrations keep about themselves. */
const OF_LANGUAGE = new Set(["store/sql.ts", "store/operation.ts", "store/migrate.ts"]);

function read(file: string): Guarded {
  const source = readFileSync(join(root, "src", file), "utf8");
  if (file.startsWith("store/") && (!source.includes("sql`") || OF_LANGUAGE.has(file)))
    return { guards: [], code: source };
  return findGuards(file, source);
}

/** For vitest: the sources rewritten so that their guards can be taken out, and the suites so that they can be run again. */
export function guardsPlugin() {
  const sources = guardedSources();
  const fileOf = (id: string): string => id.replace(/\?.*$/, "").slice(root.length);
  return {
    name: "drover-guards",
    enforce: "pre" as const,
    resolveId(source: string, importer: string | undefined): string | undefined {
      if (source !== "vitest" || importer === undefined) return undefined;
      return fileOf(importer).startsWith("src/") ? join(root, "test/guards/suite.ts") : undefined;
    },
    transform(_: string, id: string): string | undefined {
      return sources.get(fileOf(id).replace(/^src\//, ""))?.code;
    },
  };
}
