/** The folder of an account, where its login lies. */
import { lstatSync, mkdirSync } from "node:fs";
import { badInput } from "./fields.ts";

const ANOTHER = "Name another with `drover account add --home`.";

const HOME_FAULTS: Readonly<Record<string, string>> = {
  EACCES: "this user may not make it",
  EPERM: "this user may not make it",
  EROFS: "its file system is read-only",
  ENOTDIR: "a part of its path is no folder",
  EEXIST: "it is no folder",
  ENOSPC: "no space is left",
};

/** Makes the folder for this user alone, or takes one that is. @param path of the input. Errors: AppError invalid `home_unusable`. */
export function makeHome(home: string, path: string): void {
  const refuse = (why: string, hint: string) =>
    badInput(path, `the folder ${home} cannot be used: ${why}`, hint, "home_unusable");
  try {
    mkdirSync(home, { recursive: true, mode: 0o700 });
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    throw refuse(HOME_FAULTS[code] ?? code, ANOTHER);
  }
  const found = lstatSync(home);
  if (!found.isDirectory()) throw refuse("it is no folder of its own", "Name the folder itself with --home.");
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) throw refuse("it belongs to another user", ANOTHER);
  // A login lies in it.
  if ((found.mode & 0o077) !== 0) throw refuse("others can look into it", `chmod 700 ${home}`);
}
