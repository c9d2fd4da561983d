/**
 * Where the daemon of a state folder listens. It says so in that folder: a command that was started from elsewhere, as by
 * cron, by `su` or in a session of its own, has another runtime folder and would look for it in the wrong place.
 */
import { lstatSync, readFileSync, renameSync, statSync, unlinkSync, writeFileSync } from "node:fs";
import { isAbsolute } from "node:path";
import type { Places } from "../places.ts";

type Where = Pick<Places, "socket" | "socketRecord" | "state">;

/** Longer than any socket's path. */
const RECORD_BYTES = 512;

/** Says where this daemon listens. A record that cannot be written costs only those who look from elsewhere. */
export function recordSocket({ socket, socketRecord }: Where): void {
  const fresh = `${socketRecord}.${process.pid}`;
  try {
    writeFileSync(fresh, `${socket}\n`, { mode: 0o600 });
    renameSync(fresh, socketRecord);
  } catch {
    // a full disk: whoever shares the daemon's environment finds it all the same
  }
}

/** Takes the record away, where it is this daemon's. Whoever calls this holds the lock. */
export function forgetSocket(places: Where): void {
  if (recorded(places) !== places.socket) return;
  try {
    unlinkSync(places.socketRecord);
  } catch {
    // it went meanwhile; a stale one does no harm
  }
}

/** Where to ask for the daemon, best first: where it said that it is, then where this environment would have it. Never empty. */
export function socketsOf(places: Where): readonly string[] {
  const said = recorded(places);
  return said === null || said === places.socket ? [places.socket] : [said, places.socket];
}

/**
 * Whether a socket may be spoken to: it is of this user, or of the one whose state folder it is. A stale record, or a short
 * path in the folder for everybody's temporary files, may lead to what somebody else put there.
 */
export function isOwn(socket: string, { state }: Where): boolean {
  const uid = process.getuid?.();
  if (uid === undefined) return true;
  try {
    const owners = [uid, statSync(state).uid];
    return owners.includes(lstatSync(socket).uid);
  } catch {
    return false; // there is none, so nobody is asked there
  }
}

function recorded({ socketRecord }: Where): string | null {
  try {
    const found = lstatSync(socketRecord);
    if (!found.isFile() || found.size > RECORD_BYTES || (found.mode & 0o022) !== 0) return null;
    const text = readFileSync(socketRecord, "utf8").trimEnd();
    return isAbsolute(text) && !text.includes("\0") ? text : null;
  } catch {
    return null; // none was written, or it is not ours to read
  }
}
