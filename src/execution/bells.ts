/** The file in which shims say that they are over. A wake-up and no evidence: a line that is lost costs a few seconds. */
import type { FSWatcher } from "node:fs";
import { closeSync, fstatSync, ftruncateSync, openSync, readSync, watch } from "node:fs";
import { statOf } from "./attempt-folder.ts";

export interface Bells {
  /** Arms the watch again when the file was removed, which a watch never tells. Looks at most every few seconds. */
  check(): void;
  close(): void;
}

export const CHECK_MS = 5_000;
/** A file that has grown over this is begun anew once it is read. */
export const ANEW_BYTES = 256 * 1024;
const READ_BYTES = 64 * 1024;

interface Open {
  readonly watcher: FSWatcher;
  readonly descriptor: number;
  readonly inode: number;
}

/**
 * Watches the file and rings for each line that is added from now on; what was added before is judged by whoever comes up.
 * Never throws: without it, ends are found by the pass over what lives.
 */
export function openBells(file: string, log: (message: string) => void, ring: (folder: string) => void): Bells {
  let open: Open | null = null;
  let offset = 0;
  let rest = "";
  let checkedAt = performance.now();
  const buffer = Buffer.alloc(READ_BYTES);

  const leave = (): void => {
    if (open === null) return;
    open.watcher.close();
    closeSync(open.descriptor);
    open = null;
  };
  const failed = (error: unknown): void => {
    leave();
    log(`ended attempts cannot be watched: ${error instanceof Error ? error.message : String(error)}`);
  };
  const listen = (): void => {
    if (open === null) return;
    const { descriptor } = open;
    try {
      const { size } = fstatSync(descriptor);
      if (size < offset) offset = 0; // somebody emptied it
      for (let read = -1; read !== 0; offset += read) {
        read = readSync(descriptor, buffer, 0, READ_BYTES, offset);
        const lines = (rest + buffer.toString("latin1", 0, read)).split("\n");
        rest = lines.pop() ?? "";
        for (const folder of lines) ring(folder);
      }
      if (offset < ANEW_BYTES || fstatSync(descriptor).size !== offset) return;
      ftruncateSync(descriptor, 0);
      offset = 0;
    } catch (error) {
      failed(error);
    }
  };
  /** @param isFirst whether what is there is old: later on, the file is another one, and all of it is new */
  const arm = (isFirst: boolean): void => {
    try {
      const descriptor = openSync(file, "a+", 0o600);
      const { ino: inode, size } = fstatSync(descriptor);
      const watcher = watch(file, { persistent: false }, listen);
      open = { watcher, descriptor, inode };
      watcher.on("error", failed);
      offset = isFirst ? size : 0;
      rest = "";
      listen();
    } catch (error) {
      failed(error);
    }
  };
  arm(true);
  return {
    check() {
      if (performance.now() - checkedAt < CHECK_MS) return;
      checkedAt = performance.now();
      if (open !== null && statOf(file)?.ino === open.inode) return;
      leave();
      arm(false);
    },
    close: leave,
  };
}
