/** A process that takes a lock, says so, and stays. Argument: the lock's file. */
import { acquireLock } from "../../src/store/lock.ts";

const lock = await acquireLock(process.argv[2] ?? "");
process.stdout.write(lock.held ? "held\n" : `busy ${lock.owner?.pid}\n`);
if (lock.held) setInterval(() => undefined, 1000);
