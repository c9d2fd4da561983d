/** Free disk space, measured where it is asked for: what the store says may be old, or not written for want of space. */
import { statfs } from "node:fs/promises";
import { describeSize } from "../../core/size.ts";

/**
 * Says that the file system of a folder is short of space; null when it is not, or the folder is not there yet.
 * @param leastBytes below this nothing starts (`limits.minFreeBytes`)
 */
export async function shortOfDisk(folder: string, leastBytes: number): Promise<string | null> {
  try {
    const { bavail, bsize } = await statfs(folder);
    const free = bavail * bsize;
    return free < leastBytes
      ? `${describeSize(free)} of disk space are free, ${describeSize(leastBytes)} are needed`
      : null;
  } catch {
    return null; // nothing is stored yet
  }
}
