import { describe, expect, expectTypeOf, test } from "vitest";
import { BrokenAssert } from "../core/errors.ts";
import {
  all,
  byName,
  finish,
  instant,
  many,
  one,
  operation,
  read,
  readInstant,
  runAll,
  StatementFailed,
  storeOf,
} from "./operation.ts";
import type { Operation, OperationTable, Result, Steps, StoreOf } from "./operation.ts";
import { sql } from "./sql.ts";
import type { Sql } from "./sql.ts";
import { runSync } from "./sqlite-run.ts";

const table = {
  runs: {
    add: operation("runs.add", function* (_: { readonly name: string }): Steps<{ readonly id: string }> {
      yield* finish(sql`select 1`);
      return { id: "a" };
    }),
    list: read("runs.list", function* (): Steps<readonly string[]> {
      return yield* all<string>(sql`select 1`);
    }),
  },
} as const satisfies OperationTable;
type Port = StoreOf<typeof table>;

test("the port has the names, inputs and answers of the table", () => {
  expectTypeOf<Port["runs"]["add"]>().toEqualTypeOf<
    (input: { readonly name: string }) => Promise<{ readonly id: string }>
  >();
  expectTypeOf<Port["runs"]["list"]>().toEqualTypeOf<() => Promise<readonly string[]>>();
  const check = async (store: Port): Promise<void> => {
    // @ts-expect-error there is no such verb
    await store.runs.remove({ name: "x" });
    // @ts-expect-error there is no such noun
    await store.loops.add({ name: "x" });
    // @ts-expect-error a field is missing
    await store.runs.add({});
    // @ts-expect-error a field has another type
    await store.runs.add({ name: 1 });
    // @ts-expect-error the answer has no such field
    void (await store.runs.add({ name: "x" })).name;
    // @ts-expect-error a question without input takes none
    await store.runs.list({ all: true });
  };
  expect(check).toBeTypeOf("function");
  const notSteps = async (input: string): Promise<string> => input;
  // @ts-expect-error a body is a generator: no await gets into a transaction
  operation("runs.wait", notSteps);
});

test("rows have the type that is asked for, statement by statement", () => {
  function* body(): Steps<void> {
    const row = yield* one<{ readonly id: string }>(sql`select 1`);
    expectTypeOf(row).toEqualTypeOf<{ readonly id: string } | undefined>();
    const [runs, steps] = yield* many<[{ readonly run: string }, { readonly step: number }]>(
      sql`select 1`,
      sql`select 2`,
    );
    expectTypeOf(runs).toEqualTypeOf<readonly { readonly run: string }[]>();
    expectTypeOf(steps).toEqualTypeOf<readonly { readonly step: number }[]>();
    expectTypeOf(yield* runAll(sql`select 1`)).toEqualTypeOf<readonly number[]>();
  }
  expect(body).toBeTypeOf("function");
});

test("an operation stands where its name says, and calls reach the driver with it", async () => {
  expect([...byName(table).keys()]).toEqual(["runs.add", "runs.list"]);
  expect(() => byName({ loops: { add: table.runs.add } })).toThrow(BrokenAssert);
  const calls: unknown[] = [];
  const store = storeOf(table, async (entry: Operation<never, unknown>, input) => {
    calls.push([entry.name, entry.access, input]);
    return { id: "b" };
  });
  expect(await store.runs.add({ name: "x" })).toEqual({ id: "b" });
  await store.runs.list();
  expect(calls).toEqual([
    ["runs.add", "write", { name: "x" }],
    ["runs.list", "read", undefined],
  ]);
});

describe("driving a body", () => {
  const answer = (...rows: unknown[]): Result => ({ rows, changes: rows.length });

  test("answers come back in order, and the answer of the body is the answer", () => {
    const seen: Sql[] = [];
    function* body(): Steps<unknown> {
      const first = yield* one<{ readonly n: number }>(sql`select 1`);
      const [left, right] = yield* many<[{ readonly n: number }, { readonly n: number }]>(sql`select 2`, sql`select 3`);
      const counts = yield* finish(sql`update a set b = 1`);
      return [first?.n, left, right, counts];
    }
    const value = runSync(body(), (query) => {
      seen.push(query);
      return answer({ n: seen.length });
    });
    expect(value).toEqual([1, [{ n: 2 }], [{ n: 3 }], [1]]);
    expect(seen).toHaveLength(4);
  });

  test("a failed statement is told inside the operation's own frames", () => {
    function* theOperation(): Steps<void> {
      yield* runAll(sql`select 1`, sql`insert into a`);
    }
    const cause = new Error("no such table");
    try {
      runSync(theOperation(), (query) => {
        if (query !== undefined && JSON.stringify(query).includes("insert")) throw cause;
        return answer();
      });
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(StatementFailed);
      expect((error as StatementFailed).cause).toBe(cause);
      expect((error as Error).stack).toContain("theOperation");
    }
  });

  test("statements after a failed one are not run", () => {
    let ran = 0;
    function* body(): Steps<void> {
      yield* runAll(sql`select 1`, sql`select 2`, sql`select 3`);
    }
    expect(() =>
      runSync(body(), () => {
        if (++ran === 2) throw new Error("second");
        return answer();
      }),
    ).toThrow("second");
    expect(ran).toBe(2);
  });

  test("asking on after the last statements is a bug on every store", () => {
    function* body(): Steps<void> {
      yield* finish(sql`select 1`);
      yield* all(sql`select 2`);
    }
    expect(() => runSync(body(), () => answer())).toThrow(BrokenAssert);
  });

  test("a crash at each ask leaves the body where it was, without telling it", () => {
    let told = false;
    function* body(): Steps<void> {
      try {
        yield* all(sql`select 1`);
        yield* all(sql`select 2`);
        yield* finish(sql`select 3`);
      } finally {
        told = true;
      }
    }
    for (const point of [0, 1, 2]) {
      let ran = 0;
      const steps = body();
      const crash = () =>
        runSync(
          steps,
          () => {
            ran++;
            return answer();
          },
          (asks) => {
            if (asks === point) throw new Error("crash");
          },
        );
      expect(crash).toThrow("crash");
      expect(ran).toBe(point);
      expect(told).toBe(false);
    }
  });

  test("the store's instant needs one ask, which others can share", () => {
    function* body(): Steps<number> {
      return yield* instant();
    }
    expect(runSync(body(), (query) => (query === readInstant ? answer({ now: 42 }) : answer()))).toBe(42);
  });
});
