import { build } from "../scripts/build.mjs";

/** Builds the program once for all tests that drive it. */
export default async function setup(): Promise<void> {
  await build();
}
