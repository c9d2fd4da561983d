import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import { defaultLimits } from "../../core/limits.ts";
import { type Round, watchFiles } from "./declared-watch.ts";

test("a path that cannot even be looked at is what the rounds say of it, and is waited for as one that is away", async () => {
  const folder = mkdtempSync(join(tmpdir(), "drover-watch-"));
  try {
    writeFileSync(join(folder, "file"), "");
    symlinkSync("circle", join(folder, "circle"));
    for (const path of ["x".repeat(5_000), "circle", "file/below", "gone"]) {
      const over = new AbortController();
      const fault = new AppError("invalid", "file_unreadable", "no");
      const rounds: Round<never>[] = [];
      const settings = {
        store: "memory",
        limits: { ...defaultLimits, declaredLookMs: 1, declaredSettleMs: 1 },
        all: [],
      };
      for await (const round of watchFiles({ cwd: folder, settings }, [path], over.signal, () =>
        Promise.reject(fault),
      )) {
        rounds.push(round);
        // It changes: a file is there now.
        if (path === "gone" && rounds.length === 1) writeFileSync(join(folder, path), "");
        else over.abort();
      }
      expect(rounds[0], path.slice(0, 20)).toEqual({ answer: null, error: fault });
      expect(rounds).toHaveLength(path === "gone" ? 2 : 1);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
