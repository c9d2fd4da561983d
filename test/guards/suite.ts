/** Stands in for vitest in the suites that are run again and again: what they declare is kept and started from here. */
export { expect, expectTypeOf, vi } from "vitest";

type Body = (...given: never[]) => unknown;

interface Group {
  readonly name: string;
  readonly parent: Group | null;
  readonly beforeAll: Body[];
  readonly beforeEach: Body[];
  readonly afterEach: Body[];
  readonly afterAll: Body[];
  begun: boolean;
}

const groupOf = (name: string, parent: Group | null): Group => ({
  name,
  parent,
  beforeAll: [],
  beforeEach: [],
  afterEach: [],
  afterAll: [],
  begun: false,
});

interface Declared {
  readonly name: string;
  readonly group: Group;
  readonly body: () => unknown;
}

/** Longer than any of these tests takes; the store in memory waits for nothing. */
const TEST_MS = 20_000;

let current = groupOf("", null);
const groups: Group[] = [current];
export const declared: Declared[] = [];

const pathOf = (group: Group): Group[] => (group.parent === null ? [group] : [...pathOf(group.parent), group]);

function declare(name: string, one: unknown, two?: unknown): void {
  const body = (typeof one === "function" ? one : two) as Body;
  const full = [...pathOf(current).map((group) => group.name), name].filter((word) => word !== "").join(" > ");
  declared.push({ name: full, group: current, body: body as () => unknown });
}

function within(name: string, body: Body): void {
  current = groupOf(name, current);
  groups.push(current);
  (body as () => unknown)();
  current = current.parent as Group;
}

type Declare = (name: string, one: unknown, two?: unknown) => void;
const nothing: Declare = () => undefined;

const kinds = (to: Declare) =>
  Object.assign(to.bind(null), {
    each: (cases: readonly unknown[]) => (name: string, one: unknown, two?: unknown) => {
      const body = (typeof one === "function" ? one : two) as (...given: unknown[]) => unknown;
      cases.forEach((given, i) => {
        to(`${name} [${i}]`, () => (Array.isArray(given) ? body(...(given as unknown[])) : body(given)));
      });
    },
    skipIf: (condition: unknown): Declare => (condition ? nothing : to),
    runIf: (condition: unknown): Declare => (condition ? to : nothing),
  });

export const test = kinds(declare);
export const describe = kinds((name, body) => within(name, body as Body));
export const beforeAll = (body: Body): unknown => current.beforeAll.push(body);
export const beforeEach = (body: Body): unknown => current.beforeEach.push(body);
export const afterEach = (body: Body): unknown => current.afterEach.push(body);
export const afterAll = (body: Body): unknown => current.afterAll.push(body);

const call = (body: Body): unknown => (body as () => unknown)();

/** Runs one test as vitest would. Rejects when it fails. */
export async function run({ group, body }: Declared): Promise<void> {
  const path = pathOf(group);
  for (const one of path) {
    if (one.begun) continue;
    one.begun = true;
    for (const hook of one.beforeAll) await call(hook);
  }
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error("it does not end")), TEST_MS);
  });
  try {
    for (const one of path) for (const hook of one.beforeEach) await call(hook);
    await Promise.race([body(), late]);
  } finally {
    clearTimeout(timer);
    for (const one of path.toReversed()) for (const hook of one.afterEach) await call(hook);
  }
}

/** Gives back what the groups hold. */
export async function close(): Promise<void> {
  for (const group of groups.toReversed()) if (group.begun) for (const hook of group.afterAll) await call(hook);
}
