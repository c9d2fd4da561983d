/** The same program on PostgreSQL: two hosts, one store. */
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

const cluster = process.env["DROVER_TEST_POSTGRES"];

describe.runIf(cluster !== undefined)("on PostgreSQL", () => {
  let one: Home;
  let two: Home;
  beforeEach(() => {
    const url = new URL(cluster ?? "");
    url.searchParams.set("schema", `e2e_${process.pid}_${Date.now().toString(36)}`);
    one = openHome({ env: { DROVER_STORE: url.href } });
    two = openHome({ env: { DROVER_STORE: url.href } });
  });
  afterEach(async () => {
    await one.close();
    await two.close();
  });

  test("a loop fires, a run runs, and the other host sees and cancels both", async () => {
    await one.json(["up"]);
    expect(await one.json(["status"])).toMatchObject({ daemon: { state: "up" }, store: { kind: "postgres" } });
    expect(await one.json(["run", "--", "true"])).toMatchObject({ status: "succeeded" });
    await one.json(["loop", "add", "often", "--every", "1s", "--", "true"]);
    await until(async () => {
      const { items } = await two.json<{ items: { outcome: string | null }[] }>(["loop", "slots", "often"]);
      return items.some((slot) => slot.outcome === "succeeded");
    }, "a slot has succeeded, as the other host sees it");

    const { id } = await one.json<{ id: string }>(["run", "--detach", "--", "sleep", "600"]);
    await until(async () => (await two.json<{ status: string }>(["show", id])).status === "running", "it runs");
    await two.json(["up"]);
    // The request is in the store; the run's own host ends it.
    expect(await two.json(["cancel", id])).toMatchObject({ run: { status: "cancelled" } });
    expect(await two.json(["loop", "pause", "often"])).toMatchObject({ status: "paused" });
    expect((await one.refused(3, ["show", "nobody"])).code).toBe("run_not_found");
    const doctor = await one.run(["doctor", "--json"]);
    expect(doctor.out).toContain('"check":"store","level":"ok"');
  });

  test("a password in the store's address is shown nowhere", async () => {
    const url = new URL(cluster ?? "");
    url.password = "hunter2";
    const env = { DROVER_STORE: url.href };
    for (const args of [
      ["config", "show", "--json"],
      ["status", "--json"],
      ["doctor", "--json"],
    ])
      expect(JSON.stringify(await one.run(args, { env }))).not.toContain("hunter2");
  });
});
