/** The port `Agents`: follows what agents print, hands it to their adapters, and keeps the transcripts. */
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import type { AgentReading } from "../../core/agent.ts";
import { AppError } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import type { Agents, Clock, Instant } from "../../core/ports.ts";
import type { AgentTarget } from "../../core/target.ts";
import { checkZone } from "../../core/zone.ts";
import { openPlain, requireFolderName, streamFile } from "../attempt-folder.ts";
import { holeIn } from "../log-cap.ts";
import { scrubOf } from "../logs.ts";
import type { Scrub } from "../scrub.ts";
import type { Reader } from "./adapter.ts";
import { adapterOf } from "./index.ts";
import { type Framed, type Framing, frameLines } from "./lines.ts";
import {
  ENTRY_BYTES,
  MESSAGE_BYTES,
  type Serving,
  serveTexts,
  serveVerdict,
  type TranscriptWriter,
  writeTranscript,
} from "./transcript.ts";

export interface AgentsOptions {
  /** The folder of the attempts' folders. */
  readonly runsFolder: string;
  readonly limits: Pick<Limits, "lineBytes" | "transcriptBytes" | "quotaLongestMs">;
  readonly clock: Pick<Clock, "now">;
  /** Takes what an operator should know: a full disk, damaged fingerprints. */
  log(message: string): void;
}

type Stream = "stdout" | "stderr";
const STREAMS: readonly Stream[] = ["stdout", "stderr"];

const CHUNK_BYTES = 65_536;
/** One reading ends after so much, so that what it found is known soon; the next one goes on there. */
const READING_BYTES = 16 * 1_048_576;
/** The event loop gets its turn after so much time or so many lines, whichever is first. */
const SLICE_MS = 5;
const SLICE_LINES = 64;
/** Lines of standard error that the transcript keeps; agents use it for noise. */
const STDERR_NOTES = 200;
/** Lines of it that are kept for the verdict, and of each so much. */
const STDERR_TAIL_LINES = 20;
const STDERR_LINE_CHARACTERS = 4_096;
/** What is kept of a text within an event over the limit. */
const NESTED_TEXT_BYTES = ENTRY_BYTES * 2;

interface Follow {
  readonly path: string;
  readonly reader: Reader;
  readonly serving: Serving;
  readonly transcript: TranscriptWriter;
  readonly offsets: Record<Stream, number>;
  readonly framings: Readonly<Record<Stream, Framing>>;
  readonly noise: RegExp | null;
  readonly stderrTail: string[];
  stderrLines: number;
  at: Instant;
  /** One reading at a time. */
  busy: Promise<unknown>;
}

/** Opens the reader of agents' outputs. Holds no descriptor between two readings. */
export function openAgents({ runsFolder, limits, clock, log }: AgentsOptions): Agents {
  const follows = new Map<string, Follow>();
  const hostZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

  const begin = (folder: string, target: AgentTarget): Follow => {
    const path = join(runsFolder, requireFolderName(folder));
    const scrub = openScrub(path, log);
    const serving = serveTexts(scrub);
    const framing = () =>
      frameLines({ lineBytes: limits.lineBytes, nestedTextBytes: NESTED_TEXT_BYTES, seal: serving.seal });
    const adapter = adapterOf(target.provider);
    return {
      path,
      reader: adapter.start({ zone: zoneOf(target, hostZone), limits }),
      serving,
      transcript: writeTranscript({ folderPath: path, serving, maxBytes: limits.transcriptBytes, log }),
      offsets: { stdout: 0, stderr: 0 },
      framings: { stdout: framing(), stderr: framing() },
      noise: adapter.noise,
      stderrTail: [],
      stderrLines: 0,
      at: clock.now(),
      busy: Promise.resolve(),
    };
  };

  const followOf = (folder: string, target: AgentTarget): Follow => {
    const known = follows.get(folder);
    if (known !== undefined) return known;
    const follow = begin(folder, target);
    follows.set(folder, follow);
    return follow;
  };

  /** After what is under way; a reading that fails ends neither the next one nor the follow. */
  const inTurn = <T>(follow: Follow, work: () => Promise<T>): Promise<T> => {
    const done = follow.busy.then(work, work);
    follow.busy = done.catch(() => {}); // the caller has it
    return done;
  };

  const take = (follow: Follow, stream: Stream, framed: Framed): void => {
    const { transcript, reader, at } = follow;
    if (framed.kind === "note") transcript.add({ kind: "note", at, text: framed.text });
    else if (stream === "stdout") for (const entry of reader.line(framed.line, at)) transcript.add(entry);
    else takeStderr(follow, framed.line.text);
  };

  /** Hands on what was framed, in slices. */
  const takeAll = async (follow: Follow, stream: Stream, framed: Iterable<Framed>): Promise<void> => {
    let lines = 0;
    let since = performance.now();
    for (const each of framed) {
      take(follow, stream, each);
      if (++lines % SLICE_LINES !== 0 && performance.now() - since < SLICE_MS) continue;
      if (follow.transcript.isFull()) await follow.transcript.flush();
      if (performance.now() - since < SLICE_MS) continue;
      await turn();
      since = performance.now();
    }
  };

  /** Reads one stream on, at most so many bytes; answers how many it read. */
  const drain = async (follow: Follow, stream: Stream, maxBytes: number): Promise<number> => {
    const file = await openPlain(join(follow.path, streamFile(stream)));
    if (file === null) return 0;
    const framing = follow.framings[stream];
    const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
    let read = 0;
    try {
      while (read < maxBytes) {
        const { size, mtimeMs } = await file.stat();
        // What is read after a restart was written before.
        follow.at = Math.min(clock.now(), Math.round(mtimeMs));
        if (size < follow.offsets[stream]) {
          await takeAll(follow, stream, framing.restart());
          follow.offsets[stream] = 0;
        }
        const from = follow.offsets[stream];
        const hole = holeIn(follow.path, stream, size);
        if (hole !== undefined && hole.from <= from && from < hole.to) {
          framing.skip(hole.to - from);
          follow.offsets[stream] = hole.to;
          continue;
        }
        const until = hole !== undefined && from < hole.from ? Math.min(size, hole.from) : size;
        const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.length, until - from), from);
        if (bytesRead === 0) break;
        follow.offsets[stream] = from + bytesRead;
        read += bytesRead;
        await takeAll(follow, stream, framing.push(buffer.subarray(0, bytesRead)));
        if (follow.transcript.isFull()) await follow.transcript.flush();
      }
    } finally {
      await file.close();
    }
    return read;
  };

  const serveReading = ({ reader, serving }: Follow): AgentReading => {
    const found = reader.reading();
    const reading = { ...found, sessionId: found.sessionId === null ? null : serving.id(found.sessionId) };
    if (reading.trouble === null) return reading;
    return {
      ...reading,
      trouble: { ...reading.trouble, message: serving.text(reading.trouble.message, MESSAGE_BYTES).text },
    };
  };

  return {
    traits(provider) {
      const { capabilities, serialStarts } = adapterOf(provider);
      const { resume, fork, presetSession } = capabilities;
      return { resume, fork, presetSession, serialStarts };
    },

    read(folder, target) {
      const follow = followOf(folder, target);
      return inTurn(follow, async () => {
        for (const stream of STREAMS) await drain(follow, stream, READING_BYTES);
        await follow.transcript.flush();
        return serveReading(follow);
      });
    },

    conclude(folder, target, exit, now) {
      const follow = followOf(folder, target);
      return inTurn(follow, async () => {
        for (const stream of STREAMS) {
          while ((await drain(follow, stream, READING_BYTES)) > 0);
          await takeAll(follow, stream, follow.framings[stream].end());
        }
        sayStderr(follow);
        const verdict = follow.reader.finish({ exit, stderrTail: follow.stderrTail.join("\n"), now });
        const served = serveVerdict(follow.serving, verdict, limits.lineBytes);
        await follow.transcript.close(follow.at);
        follows.delete(folder);
        return served;
      });
    },
  };
}

function takeStderr(follow: Follow, text: string): void {
  if (text === "" || follow.noise?.test(text) === true) return;
  follow.stderrLines++;
  const isLong = text.length > STDERR_LINE_CHARACTERS;
  follow.stderrTail.push(isLong ? follow.serving.seal(text.slice(0, STDERR_LINE_CHARACTERS)) : text);
  if (follow.stderrTail.length > STDERR_TAIL_LINES) follow.stderrTail.shift();
  if (follow.stderrLines <= STDERR_NOTES)
    follow.transcript.add({ kind: "note", at: follow.at, text: `standard error: ${text}` });
}

function sayStderr(follow: Follow): void {
  const more = follow.stderrLines - STDERR_NOTES;
  if (more > 0)
    follow.transcript.add({ kind: "note", at: follow.at, text: `standard error: ${more} more lines are in the log` });
}

/** The zone in which the agent writes times that name none: its own variable, else the host's. */
function zoneOf(target: AgentTarget, hostZone: string): string {
  try {
    return checkZone(target.env["TZ"] ?? hostZone);
  } catch (error) {
    if (error instanceof AppError) return "UTC"; // as the C library reads a zone that it does not know
    throw error;
  }
}

function openScrub(path: string, log: (message: string) => void): Scrub | null {
  try {
    return scrubOf(path);
  } catch {
    log("the fingerprints of an attempt's secrets are damaged: nothing that it said is shown");
    return null;
  }
}
