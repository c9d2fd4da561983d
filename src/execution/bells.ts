/** The file in which shims say that they are over. A wake-up and no evidence: a line that is lost costs a few seconds. */
import type { FSWatcher } from "node:fs";
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync, watch } from "node:fs";
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
/** What is read of it at once: it lies where commands can write, and what they wrote must not hold the daemon up. */
export const LOOK_BYTES = 1024 * 1024;
/** The name of an attempt's folder is shorter. */
const NAME_LENGTH = 256;
/** A pipe that somebody put there must not hold its opener up. */
const FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK;

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
      if (size - offset > LOOK_BYTES) {
        offset = size - LOOK_BYTES;
        rest = "";
      }
      for (let read = -1; read !== 0; offset += read) {
        read = readSync(descriptor, buffer, 0, READ_BYTES, offset);
        const lines = (rest + buffer.toString("latin1", 0, read)).split("\n");
        rest = lines.pop() ?? "";
        if (rest.length > NAME_LENGTH) rest = "";
        for (const folder of lines) if (folder.length <= NAME_LENGTH) ring(folder);
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
      const descriptor = openSync(file, FLAGS, 0o600);
      const found = fstatSync(descriptor);
      const { ino: inode, size } = found;
      if (!found.isFile()) {
        closeSync(descriptor);
        throw new Error(`${file} is not a file`);
      }
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
