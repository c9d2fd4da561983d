import { describe, expect, test } from "vitest";
import { migrations, table } from "../../test/store/table.ts";
import { AppError, BrokenAssert } from "../core/errors.ts";
import { START, storesOf } from "./contract.ts";
import { OperationFailed } from "./errors.ts";
import { operation } from "./operation.ts";
import { sql } from "./sql.ts";

const forEach = storesOf({ table, migrations, writer: "test/store/writer.ts" });

/** Waits until something holds; the tests' own deadline ends it. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

forEach("operations", (open, kind) => {
  test("a change is there as soon as it is acknowledged, with the store's instant", async () => {
    const { store, clock } = await open();
    clock.advance(123);
    expect(await store.notes.add({ id: "a", body: "text" })).toBe("added");
    expect(await store.notes.get({ id: "a" })).toEqual({
      id: "a",
      body: "text",
      number: 2,
      bytes: null,
      at: START + 123,
    });
    expect(await store.notes.add({ id: "a", body: "text" })).toBe("there");
    expect(await store.notes.now({})).toBe(START + 123);
  });

  test("an operation that asks for nothing answers", async () => {
    const { store } = await open();
    expect(await store.notes.nothing({})).toBe("nothing");
  });

  test("rows are fresh plain data: the same on every store", async () => {
    const { store } = await open();
    await store.notes.put({ id: "a", body: null, number: -0, bytes: new Uint8Array([0, 1, 255]) });
    await store.notes.put({ id: "b", body: "", number: Number.MAX_SAFE_INTEGER, bytes: new Uint8Array(0) });
    const a = await store.notes.get({ id: "a" });
    const b = await store.notes.get({ id: "b" });
    expect(a).toEqual({ id: "a", body: null, number: 0, bytes: new Uint8Array([0, 1, 255]), at: START });
    expect(Object.is(a?.number, 0)).toBe(true);
    expect(a?.bytes?.constructor).toBe(Uint8Array);
    expect(b).toEqual({ id: "b", body: "", number: 2 ** 53 - 1, bytes: new Uint8Array(0), at: START });
  });

  test("truths are 0 and 1, integers divide as integers, nothing is null", async () => {
    const { store } = await open();
    await store.notes.add({ id: "a", body: "x" });
    expect(await store.notes.truths({ id: "a" })).toEqual({ there: 1, half: 2, missing: null });
    expect(await store.notes.truths({ id: "b" })).toEqual({ there: 0, half: 2, missing: null });
  });

  test.each([
    ["NUL", { id: "a\0" }, "bad_text"],
    ["a lone surrogate", { id: "\udfff" }, "bad_text"],
    ["NUL in text", { id: "a", body: "\0" }, "bad_text"],
    ["a number over 2^53 - 1", { id: "a", number: 2 ** 53 }, "bad_number"],
  ])("%s is refused, and nothing is stored", async (_, input, code) => {
    const { store } = await open();
    const put = store.notes.put({ body: null, number: 0, bytes: null, ...input });
    await expect(put).rejects.toMatchObject({ kind: "invalid", code });
    expect(await store.notes.list()).toEqual([]);
  });

  test.each([
    ["undefined", undefined],
    ["a truth", true],
    ["NaN", Number.NaN],
    ["a Date", new Date(0)],
  ])("%s is a bug of ours, and nothing is stored", async (_, body) => {
    const { store } = await open();
    const put = store.notes.put({ id: "a", number: 0, bytes: null, body: body as unknown as string });
    await expect(put).rejects.toBeInstanceOf(BrokenAssert);
    expect(await store.notes.list()).toEqual([]);
  });

  test("an operation that refuses leaves nothing, and its error arrives whole", async () => {
    const { store } = await open();
    const error = await store.notes.refuse({ id: "a" }).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(AppError);
    expect(error).toMatchObject({ kind: "invalid", code: "refused", hint: "send another", path: "id" });
    expect(await store.notes.list()).toEqual([]);
  });

  test("a statement that fails leaves nothing; the error names caller, operation and line", async () => {
    const { store } = await open();
    for (const verb of ["collide", "collideLast"] as const) {
      async function theCaller(): Promise<void> {
        await store.notes[verb]({ id: "a" });
      }
      const error = await theCaller().then(
        () => undefined,
        (thrown: unknown) => thrown as Error,
      );
      expect(error).toBeInstanceOf(OperationFailed);
      expect(error?.message).toMatch(/^notes\.collide(Last)?: .*(UNIQUE|unique)/);
      const cause = error?.cause as Error | undefined;
      const stacks = `${error?.stack}\n${cause?.stack}`;
      // A worker's bundle and a transformed source both keep the names of functions.
      expect(stacks).toMatch(/StatementFailed/);
      if (kind.way === "worker") expect(error?.stack).toContain("theCaller");
      expect(await store.notes.list()).toEqual([]);
    }
  });

  test("the store works on after every kind of failure", async () => {
    const { store } = await open();
    const failures = await Promise.allSettled([
      store.notes.refuse({ id: "a" }),
      store.notes.collide({ id: "b" }),
      store.notes.add({ id: "c", body: "x" }),
      store.notes.collideLast({ id: "d" }),
      store.notes.add({ id: "e", body: "x" }),
    ]);
    expect(failures.map((one) => one.status)).toEqual(["rejected", "rejected", "fulfilled", "rejected", "fulfilled"]);
    expect(await store.notes.list()).toEqual(["c", "e"]);
    expect((await store.notes.whole()).halves).toBe(0);
  });

  test.each([1, 2, 32])("a failing caller in each position among %i concerns nobody else", async (size) => {
    const { store } = await open();
    const positions = size === 32 ? [0, 1, 15, 30, 31] : Array.from({ length: size }, (_, i) => i);
    for (const bad of positions) {
      const answers = await Promise.allSettled(
        Array.from({ length: size }, (_, i) =>
          i === bad
            ? store.notes.collide({ id: `bad${bad}` })
            : store.notes.add({ id: `${size}-${bad}-${i}`, body: "x" }),
        ),
      );
      expect(answers.map((one) => one.status)).toEqual(
        Array.from({ length: size }, (_, i) => (i === bad ? "rejected" : "fulfilled")),
      );
    }
    const list = await store.notes.list();
    expect(list).toHaveLength(positions.length * (size - 1));
    expect(list.filter((id) => id.startsWith("bad"))).toEqual([]);
  });

  test("callers that change one row one after another lose no change", async () => {
    const { store } = await open();
    await store.notes.add({ id: "a", body: "x", parts: 0 });
    const numbers = await Promise.all(Array.from({ length: 40 }, () => store.notes.bump({ id: "a" })));
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, i) => i + 1));
    expect((await store.notes.get({ id: "a" }))?.number).toBe(40);
  });

  test("takers share rows without taking one twice", async () => {
    const { store } = await open();
    for (let i = 0; i < 12; i++) await store.notes.add({ id: `n${i}`, body: "x", parts: 0 });
    const taken = (await Promise.all([1, 2, 3, 4].map(() => store.notes.take({ limit: 3 })))).flat();
    expect(new Set(taken).size).toBe(taken.length);
    let more: readonly string[];
    do {
      more = await store.notes.take({ limit: 3 });
      taken.push(...more);
    } while (more.length > 0);
    expect(taken.toSorted()).toEqual((await store.notes.list()).toSorted());
  });

  test("lists and rows go in as one parameter", async () => {
    const { store } = await open();
    for (const id of ["a", "b", "c", `quote"'\\`, "日本"]) await store.notes.add({ id, body: "x", parts: 1 });
    expect(await store.notes.among({ ids: ["a", `quote"'\\`, "日本", "zz"], numbers: [1, 5] })).toEqual([
      "a",
      `quote"'\\`,
      "日本",
    ]);
    expect(await store.notes.among({ ids: [], numbers: [1] })).toEqual([]);
    expect(await store.notes.among({ ids: ["a"], numbers: [] })).toEqual([]);
    const rows = [
      { id: "a", number: 7 },
      { id: "b", number: null },
      { id: "none", number: 8 },
    ];
    expect(await store.notes.number({ rows })).toEqual(["a"]);
    expect((await store.notes.get({ id: "a" }))?.number).toBe(7);
    expect(await store.notes.number({ rows: [] })).toEqual([]);
  });

  test("the first rows of each", async () => {
    const { store } = await open();
    await store.notes.add({ id: "a", body: "x", parts: 3 });
    await store.notes.add({ id: "b", body: "x", parts: 1 });
    await store.notes.add({ id: "c", body: "x", parts: 0 });
    expect(await store.notes.heads({ limit: 2 })).toEqual(["a:part 0", "a:part 1", "b:part 0"]);
  });

  test("keys sort by their bytes", async () => {
    const { store } = await open();
    for (const id of ["b", "B", "a", "_", "é", "Z1", "z"]) await store.notes.add({ id, body: "x", parts: 0 });
    expect(await store.notes.list()).toEqual(["B", "Z1", "_", "a", "b", "z", "é"]);
  });

  test("sums are numbers", async () => {
    const { store } = await open();
    expect(await store.notes.whole()).toEqual({ notes: 0, halves: 0, sum: 0 });
    await store.notes.add({ id: "a", body: "x", parts: 3 });
    expect(await store.notes.whole()).toEqual({ notes: 1, halves: 0, sum: 3 });
  });

  test("ids are minted for the store's instant or the host's, and differ", async () => {
    const { store } = await open();
    const ids = await Promise.all(Array.from({ length: 50 }, () => store.notes.mint({})));
    expect(new Set(ids).size).toBe(50);
    for (const id of ids) expect(id).toMatch(/^run_[0-9a-z]{26}$/);
  });

  test("a question cannot write", async () => {
    const { store } = await open();
    await expect(store.notes.sly({ id: "a" })).rejects.toMatchObject({ code: "store_read_only" });
    expect(await store.notes.list()).toEqual([]);
    expect(await store.notes.add({ id: "b", body: "x" })).toBe("added");
  });

  test("asking on after the last statements is refused", async () => {
    const { store } = await open();
    await expect(store.notes.askOn({ id: "a" })).rejects.toBeInstanceOf(BrokenAssert);
  });

  test("statements of the test's own, beside the operations", async () => {
    const { rows, run, store } = await open();
    expect(await run(sql`insert into notes (id, at) values (${"x"}, ${1})`)).toEqual([1]);
    expect(await rows(sql`select id from notes`)).toEqual([{ id: "x" }]);
    expect(await store.notes.list()).toEqual(["x"]);
  });

  test("a second opening sees the same and applies nothing", async () => {
    const { store, again, handle } = await open();
    expect(handle.applied).toEqual([1, 2]);
    await store.notes.add({ id: "a", body: "x" });
    const other = await again();
    if (other !== handle) expect(other.applied).toEqual([]);
    expect(await other.store.notes.list()).toEqual(["a"]);
  });
});

forEach("wake-ups", (open, kind) => {
  if (kind.way === "memory") {
    test("nobody else is there to wake", async () => {
      const { store, handle } = await open();
      let told = 0;
      const stop = handle.onForeignChange(() => told++);
      await store.notes.add({ id: "a", body: "x" });
      stop();
      expect(told).toBe(0);
    });
    return;
  }

  test("a change of another process is told, one's own is not", async () => {
    const { store, handle, again } = await open();
    const other = await again();
    await store.notes.add({ id: "before", body: "x" });
    let told = 0;
    const stop = handle.onForeignChange(() => told++);
    // A first call may come once, for what happened before anybody listened.
    let n = 0;
    await until(async () => {
      await other.store.notes.add({ id: `theirs${n++}`, body: "x" });
      return told >= 2;
    });
    stop();
  });

  test("a host alone is never woken by what it does itself", async () => {
    const { store, handle } = await open();
    let told = 0;
    const stop = handle.onForeignChange(() => told++);
    const endsAt = performance.now() + 1500;
    let n = 0;
    while (performance.now() < endsAt) {
      await store.notes.add({ id: `mine${n++}`, body: "x" });
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    stop();
    // The call at the start of listening on PostgreSQL is for what was not heard before.
    expect(told).toBeLessThanOrEqual(kind.way === "postgres" ? 1 : 0);
  });
});

describe("the vocabulary", () => {
  test("operations say whether they wake others", () => {
    expect(table.notes.add.wakes).toBe(true);
    expect(table.hosts.renew.wakes).toBe(false);
    expect(table.notes.get.wakes).toBe(false);
    expect(operation("a.b", table.notes.nothing.steps).access).toBe("write");
  });
});
