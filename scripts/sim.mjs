/**
 * The simulator, bundled for this Node: `npm run sim -- --seed N --for 30d [--hosts 3] [--loops 10] [--seeds 100]
 * [--store postgres] [--faults off] [--without crash,stall#2] [--plant drop_token] [--trace]`, and `npm run sim:soak [-- --seed N]`.
 */
import { runBundled } from "./bundled.mjs";

process.exitCode = await runBundled("test/sim/cli.ts", process.argv.slice(2));
