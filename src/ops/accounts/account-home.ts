/** The folder of an account, where its login lies. */
import { chmodSync, lstatSync, mkdirSync, type Stats } from "node:fs";
import { badInput } from "../fields.ts";

const ANOTHER = "Name another with `drover account add --home`.";

const HOME_FAULTS: Readonly<Record<string, string>> = {
  EACCES: "this user may not get there",
  EPERM: "this user may not get there",
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
    throw refuse(faultOf(error), ANOTHER);
  }
  const fault = homeFault(home);
  if (fault !== null) throw refuse(fault.why, fault.hint);
}

/** The folder or the link itself; a sentence's end where that cannot be said. */
function lookAt(home: string): Stats | string | undefined {
  try {
    return lstatSync(home, { throwIfNoEntry: false });
  } catch (error) {
    return faultOf(error);
  }
}

function faultOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  return HOME_FAULTS[code] ?? code;
}

/** What is wrong with an account's folder. */
export interface HomeFault {
  /** Behind "the folder ... of ...": a sentence's end. */
  readonly why: string;
  readonly hint: string;
  /** Mends it, without loss; null where a person has to look. Errors: AppError invalid `home_unusable`. */
  readonly mend: (() => void) | null;
}

/** Looks without following a link: a login is not to be written where one leads. null: it can be used. */
export function homeFault(home: string): HomeFault | null {
  const found = lookAt(home);
  if (typeof found === "string") return { why: found, hint: ANOTHER, mend: null };
  if (found === undefined)
    return { why: "it is not there", hint: `mkdir -m 700 ${home}`, mend: () => makeHome(home, "home") };
  if (!found.isDirectory())
    return { why: "it is no folder of its own", hint: "Name the folder itself with --home.", mend: null };
  const uid = process.getuid?.();
  if (uid !== undefined && found.uid !== uid) return { why: "it belongs to another user", hint: ANOTHER, mend: null };
  // A login lies in it.
  if ((found.mode & 0o077) !== 0)
    return { why: "others can look into it", hint: `chmod 700 ${home}`, mend: () => chmodSync(home, 0o700) };
  return null;
}
