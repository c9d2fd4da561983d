import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { migrations, table } from "../../test/store/table.ts";
import { AppError } from "../core/errors.ts";
import { storeClock } from "./contract.ts";
import { openStore, parseStoreAddress } from "./open.ts";
import { placeOf } from "./postgres.ts";

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "drover-address-"));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

test.each([
  ["sqlite:drover.db", { kind: "sqlite", file: "/state/drover.db" }],
  ["sqlite:/var/x/drover.db", { kind: "sqlite", file: "/var/x/drover.db" }],
  ["sqlite:a b/é.db", { kind: "sqlite", file: "/state/a b/é.db" }],
  ["postgres://u@h/d", { kind: "postgres", url: "postgres://u@h/d", schema: null, namedStatements: true }],
  [
    "postgresql://u:p@h:5433/d?sslmode=require",
    { kind: "postgres", url: "postgresql://u:p@h:5433/d?sslmode=require", schema: null, namedStatements: true },
  ],
  [
    "postgres://u@h/d?schema=drover&prepare=off",
    { kind: "postgres", url: "postgres://u@h/d", schema: "drover", namedStatements: false },
  ],
])("%s is an address", (text, expected) => {
  expect(parseStoreAddress(text, "/state")).toEqual(expected);
});

test.each([
  "",
  "drover.db",
  "sqlite:",
  "sqlite::memory:",
  "sqlite:///x",
  "mysql://u@h/d",
  "postgres:",
  "postgres://[::1/d",
  "sqlite:a\0b",
  "postgres://u@h/d?schema=Bad-Name",
  "postgres://u@h/d?prepare=maybe",
])("%j is none", (text) => {
  expect(() => parseStoreAddress(text, "/state")).toThrow(
    expect.objectContaining({ kind: "invalid", code: "bad_store_url", hint: expect.any(String) }),
  );
});

test("a password is repeated nowhere", () => {
  for (const text of ["postgres://u:hunter2@h/d?schema=X", "postgres://u:hunter2@[/d"]) {
    try {
      parseStoreAddress(text, "/state");
      expect.unreachable();
    } catch (error) {
      expect(JSON.stringify([(error as AppError).message, (error as AppError).hint])).not.toContain("hunter2");
    }
  }
  expect(placeOf("postgres://u:hunter2@h:1/d?password=hunter2")).toBe("postgres://u@h:1/d");
});

test("nobody listens at a PostgreSQL address", async () => {
  const address = parseStoreAddress(`postgres://u:hunter2@localhost/d?host=${encodeURIComponent(root)}`, root);
  const error = await openStore({ address, table, migrations, clock: storeClock(), use: "read" }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(AppError);
  expect(error).toMatchObject({ kind: "unreachable", code: "store_unreachable" });
  expect((error as AppError).message).not.toContain("hunter2");
});

test("a file is opened for writing and for reading", async () => {
  const address = parseStoreAddress("sqlite:x/drover.db", root);
  const given = { address, table, migrations, clock: storeClock() };
  await expect(openStore({ ...given, use: "read" })).rejects.toMatchObject({ code: "no_store" });
  const writing = await openStore({ ...given, use: "write" });
  await writing.store.notes.add({ id: "a", body: "x" });
  const reading = await openStore({ ...given, use: "read" });
  expect(await reading.store.notes.list()).toEqual(["a"]);
  expect(reading.location).toBe(join(root, "x/drover.db"));
  await reading.close();
  await writing.close();
});
