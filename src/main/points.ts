/** Places in the life of an attempt at which a fault test stops or kills the real daemon. Loaded for nothing else. */
import { appendFileSync, readFileSync } from "node:fs";
import type { PointName } from "../engine/ports.ts";

/**
 * What to do at the engine's points, from a file that is read at each of them: a line `<point> <nth> <signal>` for each
 * strike, in their order. `nth` counts from the strike before; `same` waits for the attempt of that one. A strike is told in
 * `<file>.struck`, as `<point> <attempt> <signal>`, before this process sends itself the signal. A new text begins anew.
 */
export function strikesOf(file: string): (name: PointName, id: string) => void {
  let text = "";
  let script: (readonly string[])[] = [];
  let passed = 0;
  let last = "";
  return (name, id) => {
    const now = readFileSync(file, "utf8");
    if (now !== text) {
      text = now;
      script = now.split("\n").map((line) => line.split(" "));
      passed = 0;
    }
    const [point, nth, signal] = script[0] ?? [];
    if (point !== name) return;
    if (nth === "same" ? id !== last : ++passed < Number(nth)) return;
    script.shift();
    passed = 0;
    last = id;
    appendFileSync(`${file}.struck`, `${name} ${id} ${signal}\n`);
    process.kill(process.pid, signal);
  };
}
