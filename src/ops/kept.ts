/** Small values that are made once and kept in the state folder. */
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";

/** The value that the file holds; made and written, for the owner alone, where there is none. Of two makers one wins, whole. */
export function keepOnce(file: string, make: () => string): string {
  const read = (): string | null => {
    try {
      const text = readFileSync(file, "utf8").trim();
      return text === "" ? null : text;
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return null; // not made yet
      throw error;
    }
  };
  const found = read();
  if (found !== null) return found;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const fresh = `${file}.${process.pid}`;
  writeFileSync(fresh, `${make()}\n`, { mode: 0o600, flag: "w" });
  try {
    linkSync(fresh, file);
  } catch (error) {
    // Somebody else was first: theirs is the one.
    if (!(error instanceof Error && "code" in error && error.code === "EEXIST")) throw error;
  } finally {
    rmSync(fresh, { force: true });
  }
  const kept = read();
  if (kept === null) throw new Error(`${file} is empty`);
  return kept;
}
