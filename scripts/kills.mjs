// @ts-check
/** `npm run kills -- --store sqlite|postgres --count N --seed S`: builds the program and kills it, see `test/fault/ordeal.ts`. */
import { build } from "./build.mjs";
import { runBundled } from "./bundled.mjs";

await build();
process.exitCode = await runBundled("test/fault/kills-cli.ts", process.argv.slice(2));
