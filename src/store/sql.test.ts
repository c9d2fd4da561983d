import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { AppError, BrokenAssert } from "../core/errors.ts";
import {
  advisoryLock,
  bigSum,
  firstOfEach,
  forUpdate,
  join,
  jsonList,
  jsonRows,
  now,
  render,
  script,
  skipLocked,
  sql,
  storeNow,
} from "./sql.ts";
import type { Part, Sql, Value } from "./sql.ts";

const text = (query: Sql) => ({ sqlite: render(query, "sqlite").text, postgres: render(query, "postgres").text });

describe("the sql tag", () => {
  test("values become placeholders of each dialect, in order", () => {
    const query = sql`select * from runs where id = ${"a"} and number > ${5}`;
    expect(render(query, "sqlite")).toEqual({
      text: "select * from runs where id = ? and number > ?",
      values: ["a", 5],
      script: false,
    });
    expect(render(query, "postgres")).toEqual({
      text: "select * from runs where id = $1 and number > $2",
      values: ["a", 5],
      script: false,
    });
  });

  test("fragments are spliced in with their values", () => {
    const inner = sql`b = ${2} and c in (${join([3, 4], ", ")})`;
    const query = sql`select 1 where a = ${1} and ${inner} and d = ${5}`;
    expect(render(query, "postgres")).toEqual({
      text: "select 1 where a = $1 and b = $2 and c in ($3, $4) and d = $5",
      values: [1, 2, 3, 4, 5],
      script: false,
    });
  });

  test("constants are spelled for the dialect, and the store's now is bound on SQLite only", () => {
    const query = sql`update a set at = ${storeNow} where id = ${"x"} ${forUpdate}`;
    expect(render(query, "sqlite").values).toEqual([now, "x"]);
    expect(render(query, "sqlite").text).toBe("update a set at = ? where id = ? ");
    expect(render(query, "postgres").values).toEqual(["x"]);
    expect(render(query, "postgres").text).toMatch(/statement_timestamp.* where id = \$1 for update$/);
    expect(text(sql`select 1 ${skipLocked}`).postgres).toBe("select 1 for update skip locked");
  });

  test("SQLite never sees a bare parameter as a limit: it would prepare the statement anew each time", () => {
    const page = sql`select id from runs order by id limit ${2} offset ${3}`;
    expect(text(page)).toEqual({
      sqlite: "select id from runs order by id limit +? offset +?",
      postgres: "select id from runs order by id limit $1 offset $2",
    });
    expect(text(sql`select * from (${page}) as a where limits = ${1} limit ${2}`).sqlite).toBe(
      "select * from (select id from runs order by id limit +? offset +?) as a where limits = ? limit +?",
    );
  });

  test("one call site with other kinds of parts gives another text", () => {
    const make = (part: Part) => sql`select 1 where a = ${1} ${part}`;
    expect(text(make(forUpdate)).postgres).toBe("select 1 where a = $1 for update");
    expect(text(make(skipLocked)).postgres).toBe("select 1 where a = $1 for update skip locked");
    expect(text(make(sql`and b = ${2}`)).postgres).toBe("select 1 where a = $1 and b = $2");
    expect(text(make(7)).postgres).toBe("select 1 where a = $1 $2");
    expect(text(make(forUpdate)).sqlite).toBe("select 1 where a = ? ");
  });

  test.each([
    ["undefined", undefined],
    ["a truth", true],
    ["NaN", Number.NaN],
    ["infinity", Number.POSITIVE_INFINITY],
    ["a Date", new Date(0)],
    ["a plain object", { a: 1 }],
    ["a list", ["a"]],
    ["a function", () => 1],
  ])("%s is refused as a bug", (_, value) => {
    expect(() => sql`select ${value as Value}`).toThrow(BrokenAssert);
    expect(() => join([value as Value], ", ")).toThrow(BrokenAssert);
  });

  test.each([
    ["NUL", "a\0b", "bad_text"],
    ["a lone surrogate", "a\ud800b", "bad_text"],
    ["2^53", 2 ** 53, "bad_number"],
    ["-2^53", -(2 ** 53), "bad_number"],
    ["2^53 as a bigint", 2n ** 53n, "bad_number"],
  ])("%s is refused as input", (_, value, code) => {
    const refused = expect.objectContaining({ kind: "invalid", code });
    expect(() => sql`select ${value}`).toThrow(refused);
    expect(() => join([value], ", ")).toThrow(refused);
    if (typeof value === "string") {
      expect(() => jsonList([value])).toThrow(refused);
      expect(() => jsonRows([{ a: value }], { a: "text" })).toThrow(refused);
    }
  });

  test("what both stores hold is taken", () => {
    const values = ["", "é\u{1f600}", 0, -0, 2 ** 53 - 1, -(2 ** 53 - 1), 1.5, 5n, null, new Uint8Array(0)];
    for (const value of values) expect(render(sql`select ${value}`, "sqlite").values).toEqual([value]);
  });

  test("two statements, and placeholders of one's own, are refused at build time", () => {
    expect(() => sql`select 1; select 2`).toThrow(BrokenAssert);
    expect(() => sql`select ?`).toThrow(BrokenAssert);
    expect(() => sql`select ${script("select 1")}` && render(sql`select ${script("x")}`, "sqlite")).toThrow(
      BrokenAssert,
    );
  });

  test("names in fragments are names of our own", () => {
    const bad = { table: "a; drop table b", as: "s", where: sql`1 = 1`, orderBy: sql`id`, limit: 1 };
    expect(() => firstOfEach(bad)).toThrow(BrokenAssert);
    expect(() => jsonRows([], { "a'": "text" })).toThrow(BrokenAssert);
    expect(() => jsonRows([], {})).toThrow(BrokenAssert);
  });

  test("lists hold what they say", () => {
    expect(() => jsonList([1.5], "integer")).toThrow(BrokenAssert);
    expect(() => jsonList([1] as never, "text")).toThrow(BrokenAssert);
    expect(() => jsonRows([{} as never], { a: "text" })).toThrow(BrokenAssert);
  });

  test("differences have one text each", () => {
    expect(text(bigSum(sql`x`))).toEqual({ sqlite: "coalesce(sum(x), 0)", postgres: "coalesce(sum(x), 0)::bigint" });
    expect(text(advisoryLock(2)).sqlite).toBe("select 1 as held");
    const heads = firstOfEach({ table: "steps", as: "s", where: sql`k = o.k`, orderBy: sql`id`, limit: 8 });
    expect(text(heads)).toEqual({
      sqlite: "join steps s on s.id in (select id from steps where k = o.k order by id limit +?)",
      postgres: "cross join lateral (select * from steps where k = o.k order by id limit $1) s",
    });
  });

  test("however fragments are nested, placeholders and values agree and no value is in the text", () => {
    const value = fc.oneof(
      fc.integer().map((n) => n + 0.5),
      fc.constant("zzz"),
      fc.constant(null),
    );
    const tree: fc.Arbitrary<Sql> = fc.letrec<{ query: Sql }>((tie) => ({
      query: fc.oneof(
        { depthSize: "small" },
        value.map((one) => sql`a = ${one}`),
        fc.tuple(tie("query"), value).map(([query, one]) => sql`(${query} or b = ${one} ${forUpdate})`),
        fc.array(tie("query"), { maxLength: 4 }).map((queries) => sql`(${join(queries, " and ")}) < ${storeNow}`),
        fc.array(fc.string({ unit: "grapheme-ascii" }), { maxLength: 3 }).map((list) => sql`c in (${jsonList(list)})`),
      ),
    })).query;
    fc.assert(
      fc.property(tree, (query) => {
        const sqlite = render(query, "sqlite");
        expect(sqlite.text.split("?").length - 1).toBe(sqlite.values.length);
        const postgres = render(query, "postgres");
        const numbers = [...postgres.text.matchAll(/\$(\d+)/g)].map(([, number]) => Number(number));
        expect(numbers).toEqual(postgres.values.map((_, i) => i + 1));
        expect(sqlite.values.filter((one) => one !== now)).toEqual(postgres.values);
        expect(sqlite.text).not.toContain("zzz");
      }),
    );
  });

  test("errors for people say what to do", () => {
    try {
      render(sql`select ${"\0"}`, "sqlite");
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(AppError);
      expect((error as AppError).hint).toBeTruthy();
    }
  });
});
