/** The daemon's log: JSON lines in a file of bounded size, equal lines folded. */
import { closeSync, fstatSync, mkdirSync, openSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";

export type LogLevel = "debug" | "info" | "warn" | "error";

export interface DaemonLogOptions {
  readonly file: string;
  readonly now: () => number;
  /** Size at which the file is put aside as `.1`; the older ones move on. */
  readonly maxBytes?: number;
  /** Files kept beside the one that is written. */
  readonly keep?: number;
  /** An equal line within this time is counted, not written. */
  readonly foldMs?: number;
  /** Also told of every line that is written. */
  readonly echo?: (line: LogLine) => void;
}

export interface LogLine {
  readonly at: string;
  readonly level: LogLevel;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** How often the line came again since it was written, and when it did last. */
  readonly repeated?: number;
  readonly until?: string;
}

export const LOG_LIMITS = {
  maxBytes: 4 * 1024 * 1024,
  keep: 2,
  foldMs: 60_000,
  /** Different lines that are remembered for folding; the one that was quiet longest goes first. */
  remembered: 64,
  /** Characters of one line. */
  lineCharacters: 16_384,
} as const;

export interface DaemonLog {
  write(level: LogLevel, event: string, data?: Readonly<Record<string, unknown>>): void;
  /** Writes what was folded, and lets go of the file. Once is enough; what is written afterwards is lost. */
  close(): void;
}

interface Folded {
  readonly level: LogLevel;
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
  since: number;
  last: number;
  count: number;
}

/** Opens the log. A disk that is full costs lines, never the daemon. */
export function openDaemonLog(options: DaemonLogOptions): DaemonLog {
  const {
    file,
    now,
    maxBytes = LOG_LIMITS.maxBytes,
    keep = LOG_LIMITS.keep,
    foldMs = LOG_LIMITS.foldMs,
    echo,
  } = options;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  let descriptor = openSync(file, "a", 0o600);
  let bytes = fstatSync(descriptor).size;
  const recent = new Map<string, Folded>();
  let isClosed = false;

  const put = (level: LogLevel, event: string, data: Readonly<Record<string, unknown>>, folded?: Folded): void => {
    const line: LogLine = {
      at: new Date(now()).toISOString(),
      level,
      event,
      data,
      ...(folded === undefined ? {} : { repeated: folded.count, until: new Date(folded.last).toISOString() }),
    };
    let text = JSON.stringify(line);
    if (text.length > LOG_LIMITS.lineCharacters)
      text = JSON.stringify({ ...line, data: { cut: JSON.stringify(data).slice(0, LOG_LIMITS.lineCharacters - 512) } });
    try {
      if (bytes >= maxBytes) rotate();
      bytes += writeSync(descriptor, `${text}\n`);
    } catch {
      // A full disk, or a folder that somebody removed: what the log tells of goes on.
    }
    echo?.(line);
  };

  function rotate(): void {
    for (let nth = keep; nth >= 1; nth--) {
      try {
        renameSync(nth === 1 ? file : `${file}.${nth - 1}`, `${file}.${nth}`);
      } catch {
        // that one is not there yet
      }
    }
    const next = openSync(file, "a", 0o600);
    closeSync(descriptor);
    descriptor = next;
    bytes = fstatSync(descriptor).size;
  }

  const flush = (key: string, folded: Folded): void => {
    recent.delete(key);
    if (folded.count > 0) put(folded.level, folded.event, folded.data, folded);
  };
  const flushOld = (): void => {
    for (const [key, folded] of recent) if (now() - folded.since >= foldMs) flush(key, folded);
  };
  const timer = setInterval(flushOld, foldMs);
  timer.unref();

  return {
    write(level, event, data = {}) {
      // Its descriptor may be another file's by now.
      if (isClosed) return;
      const key = `${level} ${event} ${JSON.stringify(data)}`;
      const folded = recent.get(key);
      if (folded !== undefined && now() - folded.since < foldMs) {
        folded.count += 1;
        folded.last = now();
        return;
      }
      if (folded !== undefined) flush(key, folded);
      const [oldest] = recent;
      if (recent.size >= LOG_LIMITS.remembered && oldest !== undefined) flush(...oldest);
      recent.set(key, { level, event, data, since: now(), last: now(), count: 0 });
      put(level, event, data);
    },
    close() {
      if (isClosed) return;
      isClosed = true;
      clearInterval(timer);
      for (const [key, folded] of recent) flush(key, folded);
      closeSync(descriptor);
    },
  };
}
