/** Output of commands, and whether anybody still reads it. */
import { writeSync } from "node:fs";

export type Output = "stdout" | "stderr";

export const DESCRIPTORS: Readonly<Record<Output, number>> = { stdout: 1, stderr: 2 };
const opened = new Map<Output, NodeJS.WriteStream>();
let broken = false;

/** Whether a reader has gone away: there is nobody to tell any more. */
export const isBroken = (): boolean => broken;

/** Everything that was written is with the system. */
export const isWritten = (): boolean => [...opened.values()].every(({ writableLength }) => writableLength === 0);

/** Node's own stream; its reader may go away. Making one loads some 30 modules, which an answer in one piece does without. */
export function streamOf(output: Output): NodeJS.WriteStream {
  const known = opened.get(output);
  if (known !== undefined) return known;
  const stream = process[output];
  stream.on("error", () => {
    broken = true;
    stream.destroy();
  });
  opened.set(output, stream);
  return stream;
}

/** Writes, and waits while whoever reads is slower. */
export async function put(output: Output, text: string): Promise<void> {
  const rest = opened.has(output) ? Buffer.from(text) : writtenAtOnce(DESCRIPTORS[output], Buffer.from(text));
  if (rest.length === 0) return;
  const stream = streamOf(output);
  if (stream.destroyed || !stream.writable || stream.write(rest)) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      stream.off("drain", done);
      stream.off("close", done);
      resolve();
    };
    stream.once("drain", done);
    stream.once("close", done);
  });
}

/** Writes what the system takes now, as Node's streams to files, terminals and pipes do; answers what is left for them. */
function writtenAtOnce(descriptor: number, bytes: Buffer): Buffer {
  let rest = bytes;
  try {
    while (rest.length > 0) rest = rest.subarray(writeSync(descriptor, rest));
  } catch {
    // A reader that is slow or gone, or no space: the stream waits for the one and tells of the others.
  }
  return rest;
}
