import { startPostgres } from "./postgres.ts";

/** The cluster that the groups of one test run share, and how many of them still use it. */
interface Shared {
  readonly cluster: ReturnType<typeof startPostgres>;
  users: number;
}

const KEY = Symbol.for("drover.test.postgres");
const shelf = globalThis as { [KEY]?: Shared | undefined };

/**
 * Gives tests a PostgreSQL cluster: its address is in `DROVER_TEST_POSTGRES`. One that is already there (a server of
 * the developer's own) is used as it is. With `DROVER_TEST_STORES=sqlite` there is none.
 */
export default async function setup(): Promise<(() => Promise<void>) | undefined> {
  if (process.env["DROVER_TEST_STORES"] === "sqlite") return undefined;
  if (process.env["DROVER_TEST_POSTGRES"] !== undefined && shelf[KEY] === undefined) return undefined;
  // Each group loads this file anew, so what they share hangs on the process.
  shelf[KEY] ??= { cluster: startPostgres(), users: 0 };
  const shared = shelf[KEY];
  shared.users += 1;
  const { url, stop } = await shared.cluster;
  process.env["DROVER_TEST_POSTGRES"] = url;
  return async () => {
    shared.users -= 1;
    if (shared.users > 0) return;
    shelf[KEY] = undefined;
    delete process.env["DROVER_TEST_POSTGRES"];
    await stop();
  };
}
