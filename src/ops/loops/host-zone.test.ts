import { expect, test } from "vitest";
import { requireHostZone } from "./host-zone.ts";

test.each([undefined, "", "UTC", "UTC0", ":UTC", "Etc/UTC"])("TZ=%s means UTC", (asked) => {
  expect(requireHostZone(asked, "UTC")).toBe("UTC");
});

test("a TZ that the engine reads in its own way is taken as read", () => {
  expect(requireHostZone("CET-1CEST", "Europe/Paris")).toBe("Europe/Paris");
});

test.each(["UTC", undefined])("a TZ that means nothing is refused, not taken for %s", (made) => {
  expect(() => requireHostZone("Mars/Olympus", made)).toThrow(
    expect.objectContaining({ code: "unknown_zone", path: "TZ", hint: expect.stringContaining("--tz") as string }),
  );
});
