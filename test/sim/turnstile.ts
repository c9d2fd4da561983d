/**
 * The way to a real PostgreSQL server, in the hand of a seed. Every statement that the product's driver sends waits here; one
 * transaction at a time goes on, as far as chance says, and the next is looked at when the server has answered or is known to
 * wait for somebody's lock. So the server meets every order of statements that a seed asks for, and virtual time stands still
 * meanwhile, unless a statement is held for a while on purpose.
 *
 * Not decided by the seed: whom of several waiters a lock wakes first, when a deadlock is noticed, the pauses of a retry (in
 * real time, and short), background work of the server, and so the order of two calls of which one connects anew.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import pg, { type Client, type QueryResult } from "pg";
import type { Chance } from "./chance.ts";
import type { Call } from "./store.ts";
import type { Context, Time } from "./time.ts";

export interface TurnstileOptions {
  readonly chance: Chance;
  readonly time: Time;
  /** The store's clock. */
  readonly now: () => number;
  /** Whether no faults are wanted at the moment. */
  readonly calm: () => boolean;
  /** Before a transaction of this call commits: what the commit will be judged by is read now. */
  beforeCommit(call: Call): void;
  /** It has committed, and nobody knows yet. */
  afterCommit(call: Call): Promise<void>;
  /** A transaction waits for `ms` between two statements. */
  onHold(ms: number): void;
  /** This process is to die now, between two of its statements. */
  onCut(context: Context, call: Call): void;
  /** Tells a server's process to end. */
  terminate(pid: number): Promise<void>;
  /** Whether a server's process waits for a lock that somebody holds. */
  waits(pid: number): Promise<boolean>;
}

/** The driver's own limit: the server ends a transaction that is left alone for longer. */
const IDLE_IN_TRANSACTION_MS = 10_000;
/** A statement that has not answered after this long may be waiting for a lock. Real time, like the next. */
const LOOK_MS = 3;
const PATIENCE_MS = 30_000;

interface Unit {
  readonly text: string;
  readonly call: Tracked;
  send(): Promise<QueryResult>;
  resolve(result: QueryResult): void;
  reject(error: unknown): void;
}

interface Tracked extends Call {
  /** Statements that wait here or at the server. */
  pending: number;
  readonly turnstile: Inner;
  /** Where its connection comes from. */
  pool?: { readonly waitingCount: number; readonly idleCount: number };
}

/** A connection and what is to go through it. */
interface Line {
  readonly client: Client;
  readonly context: Context | null;
  readonly units: Unit[];
  open: boolean;
  clockAt: number;
  held: boolean;
  holdNext: boolean;
  dead: boolean;
  /** Its transaction tells those who listen when it commits. */
  notifies: boolean;
  /** What the server works at and waits with. */
  blocked: { readonly units: readonly Unit[]; answers: PromiseSettledResult<QueryResult>[] | null } | null;
}

interface Inner {
  queue(call: Tracked, client: Client, text: string, send: () => Promise<QueryResult>): Promise<QueryResult>;
}

export interface Turnstile {
  /** Runs a call whose statements go through here. */
  run<T>(call: Call, work: () => Promise<T>): Promise<T>;
  /** Something that must come to its end before time moves on. */
  wait(chore: Promise<unknown>): void;
  /** Whether no transaction is open that may write. */
  quiet(): boolean;
  /** Whether nobody can go on before virtual time does. */
  idle(): boolean;
  /** Lets all go on that can. */
  settle(): Promise<void>;
  /** What a process had open is gone with it. */
  drop(context: Context): void;
  /** All of it is over. */
  end(): void;
  /** Breaks a connection that listens; whoever does listens again. */
  deafen(): void;
  readonly counts: Readonly<Record<"statements" | "commits" | "holds" | "blocked" | "killed" | "lostAnswers", number>>;
}

const calls = new AsyncLocalStorage<Tracked>();
/** Connections that listen, and notifications that each has had. */
const ears = new Map<Client, { heard: number }>();

const textOf = (query: unknown): string =>
  typeof query === "string" ? query : ((query as { readonly text?: string }).text ?? "");

let patched = false;

/** The driver stays as it is; what it sends and where it gets connections is seen at the library that it uses. */
function patch(): void {
  if (patched) return;
  patched = true;
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown;
  const connect = pg.Pool.prototype.connect as (...args: unknown[]) => unknown;
  Object.assign(pg.Client.prototype, {
    query(this: Client, ...args: unknown[]) {
      const text = textOf(args[0]);
      const call = calls.getStore();
      if (call !== undefined)
        return call.turnstile.queue(call, this, text, () => query.apply(this, args) as Promise<QueryResult>);
      const answered = query.apply(this, args);
      if (!text.startsWith("listen ")) return answered;
      const ear = { heard: 0 };
      this.on("notification", () => ear.heard++);
      this.once("end", () => ears.delete(this));
      return (answered as Promise<unknown>).then((result) => {
        ears.set(this, ear);
        return result;
      });
    },
  });
  Object.assign(pg.Pool.prototype, {
    connect(this: unknown, ...args: unknown[]) {
      const call = calls.getStore();
      if (call !== undefined) call.pool = this as NonNullable<Tracked["pool"]>;
      return connect.apply(this, args);
    },
  });
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const pidOf = (client: Client): number => (client as unknown as { readonly processID: number }).processID;

export function createTurnstile(options: TurnstileOptions): Turnstile {
  const { chance, time, calm } = options;
  patch();
  let lines: Line[] = [];
  const running = new Set<Tracked>();
  const chores = new Set<Promise<unknown>>();
  const counts = { statements: 0, commits: 0, holds: 0, blocked: 0, killed: 0, lostAnswers: 0 };

  function lineOf(client: Client, context: Context | null): Line {
    const there = lines.find((line) => line.client === client);
    if (there !== undefined) return there;
    const line: Line = {
      client,
      context,
      units: [],
      open: false,
      clockAt: Number.NaN,
      held: false,
      holdNext: false,
      dead: false,
      notifies: false,
      blocked: null,
    };
    client.once("end", () => {
      line.dead = true;
      line.open = false;
    });
    lines.push(line);
    return line;
  }

  /** Real time, for what no seed can hasten; a server that never answers is the end of the test. */
  async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
    const endsAt = performance.now() + PATIENCE_MS;
    while (!(await holds())) {
      if (performance.now() > endsAt) throw new Error(`the turnstile waited ${PATIENCE_MS} ms in vain for ${what}`);
      await turn();
    }
  }

  function wait(chore: Promise<unknown>): void {
    const kept = chore.catch(() => undefined).finally(() => chores.delete(kept));
    chores.add(kept);
  }

  async function kill(line: Line): Promise<void> {
    if (line.dead) return;
    counts.killed++;
    await options.terminate(pidOf(line.client));
    await until("the end of a connection", () => line.dead);
  }

  function hold(line: Line, ms: number): void {
    counts.holds++;
    line.held = true;
    const of = line.units[0];
    const release = () => {
      if (line.units[0] === of) line.held = false;
    };
    if (line.open && ms > IDLE_IN_TRANSACTION_MS)
      time.at(time.now + IDLE_IN_TRANSACTION_MS, () => wait(kill(line).then(release)));
    else time.at(time.now + ms, release);
    options.onHold(ms);
  }

  /** One that stands still sends nothing; the server does not wait for it for ever. */
  function standStill(line: Line, context: Context): void {
    line.held = true;
    const of = line.units[0];
    context.deliver(() => {
      if (line.units[0] === of) line.held = false;
    });
    if (line.open)
      time.at(time.now + IDLE_IN_TRANSACTION_MS, () => {
        if (line.held && line.units[0] === of) wait(kill(line));
      });
  }

  const isAlone = (line: Line) => lines.every((other) => other === line || !(other.open || other.blocked !== null));

  async function answer(
    line: Line,
    units: readonly Unit[],
    answers: readonly PromiseSettledResult<QueryResult>[],
  ): Promise<void> {
    for (const [i, unit] of units.entries()) {
      const settled = answers[i];
      if (settled === undefined) continue;
      if (/^begin\b/.test(unit.text)) {
        line.open = true;
        line.notifies = false;
      }
      if (/^(?:commit|rollback)\b/.test(unit.text)) line.open = false;
      if (settled.status === "fulfilled" && unit.text.includes("pg_notify("))
        line.notifies = (settled.value.rows[0] as { readonly wrote?: number } | undefined)?.wrote === 1;
      if (unit.text !== "commit" || unit.call.entry.access === "read") continue;
      counts.commits++;
      await options.afterCommit(unit.call);
    }
    if (line.dead) line.open = false;
  }

  function pass(units: readonly Unit[], answers: readonly PromiseSettledResult<QueryResult>[]): void {
    for (const [i, unit] of units.entries()) {
      const settled = answers[i];
      unit.call.pending--;
      if (settled?.status === "fulfilled") unit.resolve(settled.value);
      else unit.reject(settled?.reason);
    }
  }

  /** Looks at who waits for a lock: some have it now. */
  async function lookAtBlocked(): Promise<void> {
    for (const line of lines) {
      const { blocked } = line;
      if (blocked === null) continue;
      await until("a lock", async () => blocked.answers !== null || (await options.waits(pidOf(line.client))));
      if (blocked.answers === null || line.blocked !== blocked) continue;
      line.blocked = null;
      await answer(line, blocked.units, blocked.answers);
      pass(blocked.units, blocked.answers);
    }
  }

  /** Lets a connection send its next statements, and waits for what comes of it. */
  async function advance(line: Line): Promise<void> {
    if (line.holdNext) {
      line.holdNext = false;
      const p = chance.next();
      return hold(line, p < 0.5 ? chance.int(1, 50) : p < 0.85 ? chance.int(50, 3_000) : chance.int(3_000, 20_000));
    }
    const alone = isAlone(line);
    const [head] = line.units;
    if (head === undefined) return;
    const upToCommit = line.units.findIndex((unit) => unit.text === "commit");
    const most = upToCommit === 0 ? 1 : upToCommit === -1 ? line.units.length : upToCommit;
    const disturbed = !calm() && chance.hit(0.06);
    const count = disturbed || !alone ? chance.int(1, most) : line.units.length;
    let loses = false;
    if (disturbed) {
      const what = chance.next();
      if (what < 0.04) await kill(line);
      else if (what < 0.1 && line.context !== null) {
        options.onCut(line.context, head.call);
        if (!line.context.alive) return;
      } else if (what < 0.5 && head.text === "commit" && head.call.entry.access === "write") loses = true;
      else line.holdNext = true;
    }
    const units = line.units.splice(0, count);
    for (const unit of units)
      if (unit.text === "commit" && unit.call.entry.access === "write") options.beforeCommit(unit.call);
    counts.statements += units.length;
    if (line.open && line.clockAt !== options.now()) {
      // The driver sets the clock where it begins; a statement that comes later is later.
      const { client } = line;
      void calls.exit(() => client.query(`set local drover.now = '${options.now()}'`)).catch(() => undefined);
    }
    line.clockAt = options.now();
    const heard = new Map([...ears].map(([client, ear]) => [client, ear.heard]));
    const sent = Promise.allSettled(units.map((unit) => unit.send()));
    if (!alone) {
      const blocked: NonNullable<Line["blocked"]> = { units, answers: null };
      const answered = sent.then((answers) => {
        blocked.answers = answers;
      });
      let waits = false;
      while (blocked.answers === null && !waits) {
        let timer: NodeJS.Timeout | undefined;
        const later = new Promise<void>((resolve) => {
          timer = setTimeout(resolve, LOOK_MS);
        });
        await Promise.race([answered, later]);
        clearTimeout(timer);
        if (blocked.answers === null) waits = await options.waits(pidOf(line.client));
      }
      if (blocked.answers === null) {
        counts.blocked++;
        line.blocked = blocked;
        return;
      }
    }
    const answers = await sent;
    await answer(line, units, answers);
    if (line.notifies && !line.open && answers.every((one) => one.status === "fulfilled"))
      await until("a notification", () =>
        [...heard].every(([client, count]) => !ears.has(client) || (ears.get(client)?.heard ?? 0) > count),
      );
    if (loses && answers[0]?.status === "fulfilled") {
      counts.lostAnswers++;
      await kill(line);
      answers[0] = { status: "rejected", reason: new Error("Connection terminated unexpectedly") };
    }
    pass(units, answers);
    if (!line.open) await lookAtBlocked();
  }

  /** A call that neither waits here nor for a connection of a full pool is at something that only the machine hastens. */
  const isLoose = (call: Tracked) =>
    call.pending === 0 && !(call.pool !== undefined && call.pool.waitingCount > 0 && call.pool.idleCount === 0);

  function letGo(line: Line): void {
    for (const unit of line.units.splice(0)) {
      unit.call.pending--;
      unit.reject(new Error("Connection terminated"));
    }
    wait(kill(line).then(lookAtBlocked));
  }

  const readyOf = () => lines.filter((line) => line.units.length > 0 && !line.held && line.blocked === null);
  const isLocked = () => lines.some((line) => line.blocked !== null) && !lines.some((line) => line.held);

  const inner: Inner = {
    queue(call, client, text, send) {
      if (call.context?.alive === false) return Promise.reject(new Error("Connection terminated"));
      const line = lineOf(client, call.context);
      call.pending++;
      return new Promise((resolve, reject) => {
        line.units.push({ text, call, send, resolve, reject });
      });
    },
  };

  return {
    counts,
    wait,
    idle: () => chores.size === 0 && ![...running].some(isLoose) && readyOf().length === 0 && !isLocked(),
    quiet: () => lines.every((line) => !line.open && line.blocked === null),
    run(call, work) {
      const tracked: Tracked = { ...call, pending: 0, turnstile: inner };
      running.add(tracked);
      return calls.run(tracked, work).finally(() => running.delete(tracked));
    },
    async settle() {
      for (;;) {
        await turn();
        const endsAt = performance.now() + PATIENCE_MS;
        while (chores.size > 0 || [...running].some(isLoose)) {
          if (chores.size > 0) await Promise.all(chores);
          await turn();
          if (performance.now() > endsAt)
            throw new Error(
              `calls that do not go on: ${[...running]
                .filter(isLoose)
                .map((call) => call.entry.name)
                .join(", ")}`,
            );
        }
        lines = lines.filter((line) => !line.dead || line.units.length > 0 || line.blocked !== null);
        for (const line of lines)
          if (line.units.length > 0 && !line.held && line.context?.stalled === true) standStill(line, line.context);
        const ready = readyOf();
        const next = ready.length === 1 ? ready[0] : ready.length === 0 ? undefined : chance.pick(ready);
        if (next !== undefined) await advance(next);
        else if (isLocked()) {
          // Nobody whom they could wait for is held by us: the server will find that they wait for each other.
          await turn();
          await lookAtBlocked();
        } else if (chores.size === 0 && ![...running].some(isLoose)) return;
      }
    },
    drop(context) {
      for (const line of lines) if (line.context === context) letGo(line);
      for (const call of running) if (call.context === context) running.delete(call);
    },
    end() {
      for (const line of lines) letGo(line);
      running.clear();
    },
    deafen() {
      const [ear] = ears.keys();
      if (ear === undefined) return;
      const listening = ears.size;
      wait(
        options
          .terminate(pidOf(ear))
          .then(() => until("somebody to listen again", () => ears.size >= listening && !ears.has(ear))),
      );
    },
  };
}
