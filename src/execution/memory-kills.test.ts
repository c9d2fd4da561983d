import { expect, test } from "vitest";
import { watchMemoryKills } from "./memory-kills.ts";

function open(count: number | null) {
  const kernel = { count, at: 0 };
  const kills = watchMemoryKills(
    () => kernel.count,
    () => kernel.at,
  );
  const look = (ms: number) => {
    kernel.at += ms;
    kills.sample();
  };
  return { kernel, kills, look };
}

test("B-021 a kill just before explains an end, also when a look came between the two, and one long before does not", () => {
  const { kernel, kills, look } = open(7);
  for (let i = 0; i < 3; i++) look(5_000);
  expect(kills.explains("a.1")).toBe(false);
  kernel.count = 8;
  expect(kills.explains("b.1")).toBe(true);
  look(5_000);
  expect(kills.explains("c.1")).toBe(true);
  look(10); // so soon no look is taken
  expect(kills.explains("d.1")).toBe(true);
  look(5_000);
  expect(kills.explains("e.1")).toBe(false);
});

test("what the kernel did while nothing was live explains nothing", () => {
  const { kernel, kills, look } = open(0);
  kernel.count = 3;
  look(60_000); // an attempt starts
  expect(kills.explains("a.1")).toBe(false);
  kernel.count = 4;
  expect(kills.explains("b.1")).toBe(true);
});

test("what was said of an attempt is said again, and no more is kept than that takes", () => {
  const { kernel, kills, look } = open(0);
  expect(kills.explains("a.1")).toBe(false);
  kernel.count = 1;
  expect(kills.explains("a.1")).toBe(false);
  expect(kills.explains("b.1")).toBe(true);
  for (let i = 0; i < 3; i++) look(5_000);
  expect(kills.explains("b.1")).toBe(true);
  for (let i = 0; i < 1_000; i++) kills.explains(`c.${i}`);
  expect(kills.explains("b.1")).toBe(false);
});

test("where the kernel does not say, nothing is explained", () => {
  const { kernel, kills, look } = open(null);
  look(5_000);
  expect(kills.explains("a.1")).toBe(false);
  kernel.count = 1;
  expect(kills.explains("b.1")).toBe(false);
});
