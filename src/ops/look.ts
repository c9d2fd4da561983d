/** What lies at a path that somebody named. Whatever keeps it from being looked at, there is nothing for us: it may be too long, or lead in a circle. */
import { type Stats, statSync } from "node:fs";

/** Links are followed; null where nothing can be seen. */
export function lookAt(path: string): Stats | null {
  try {
    return statSync(path);
  } catch {
    return null; // not there, no name that any file could have, or below a folder that may not be entered
  }
}

export const isFolder = (path: string): boolean => lookAt(path)?.isDirectory() === true;

export const isFile = (path: string): boolean => lookAt(path)?.isFile() === true;
