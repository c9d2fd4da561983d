/** What goes into a start: where it works, what its process is told, the session and the prompt of an agent. */
import { AppError } from "../core/errors.ts";
import type { AgentLaunch, Launch } from "../core/ports.ts";
import type { WorktreeRecord } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import type { AgentTarget } from "../core/target.ts";
import { worktreeOf } from "../core/target-parts.ts";
import { classOfPreparation, nothing } from "./classify.ts";
import type { Life } from "./life.ts";
import type { EnginePorts } from "./ports.ts";
import { inputOf, resumption } from "./resumption.ts";
import { Halted, type Weather } from "./weather.ts";

/** A start that is ready to be asked for: `sessionId` is of an agent, where it is known beforehand. */
export interface Ready {
  readonly sessionId: string | null;
}

/** What is done before an attempt is asked for. */
export interface Launches {
  /**
   * Where it works: the run's worktree, made by its first attempt and kept in `life.tree`; null for the target's own folder.
   * Rejects with what `unfit` reads.
   */
  workplace(life: Life): Promise<string | null>;
  /** Makes its folder, its environment and its secrets; or what keeps it from starting. Rejects with `Halted` alone. */
  prepare(life: Life, cwd: string | null): Promise<Ready | { readonly unfit: Outcome }>;
  /** What an error before the start means; that the engine goes down means nothing: throws `Halted` on. */
  unfit(life: Life, error: unknown): Outcome;
}

/** What starts are made of, beside their attempts. */
export interface LaunchesOptions {
  readonly ports: Pick<EnginePorts, "store" | "spawner" | "agents" | "worktrees" | "random" | "signToken" | "log">;
  readonly weather: Weather;
  readonly hostId: string;
  /** Value of `DROVER_SOCKET`. */
  readonly socket: string;
  /** The disk is too full to start anything. */
  readonly onFull: () => void;
}

/** The one that prepares the starts of this host. */
export function createLaunches({ ports, weather, hostId, socket, onFull }: LaunchesOptions): Launches {
  const { store, spawner, agents, worktrees, random, signToken, log } = ports;

  async function prepare(life: Life, cwd: string | null): Promise<Ready | { readonly unfit: Outcome }> {
    const { target } = life.assignment.run;
    try {
      const launch: Launch = {
        folder: life.folder,
        target,
        variables: variablesOf(life),
        input: "",
        ...(cwd === null ? {} : { cwd }),
      };
      if (target.kind !== "agent") {
        await spawner.prepare(launch);
        if (life.tree !== null) await watchMain(life.tree, life.folder);
        return { sessionId: null };
      }
      const order = await orderOf(life, target);
      const since = life.assignment.before?.folder ?? null;
      const { input, agent } = order;
      await spawner.prepare({ ...launch, input, agent, ...(since === null ? {} : { since }) });
      if (life.tree !== null) await watchMain(life.tree, life.folder);
      return { sessionId: order.sessionId };
    } catch (error) {
      return { unfit: unfit(life, error) };
    }
  }

  function unfit(life: Life, error: unknown): Outcome {
    if (error instanceof Halted) throw error;
    const code = error instanceof AppError ? error.code : "spawn";
    const reason = classOfPreparation(code);
    if (reason === "storage") onFull();
    if (!(error instanceof AppError)) weather.mishap(`prepare ${life.id}`, error, 1);
    const message = error instanceof AppError ? withHint(error) : `it could not be prepared: ${String(error)}`;
    const { target } = life.assignment.run;
    // A program that the target names is its work's own, as a command is.
    if (code === "agent_not_found" && target.kind === "agent")
      return target.command === null
        ? { ...nothing, kind: "never_started", class: reason, message, programAway: true }
        : { ...nothing, kind: "failed", class: "not_found", message };
    return { ...nothing, kind: reason === "workspace" ? "failed" : "never_started", class: reason, message };
  }

  /** Steps of one run that make its tree: one after another, the others find it made. */
  const making = new Map<string, Promise<unknown>>();

  async function workplace(life: Life): Promise<string | null> {
    const { id } = life.assignment.run;
    const mine = (making.get(id) ?? Promise.resolve()).then(
      () => makeWorkplace(life),
      () => makeWorkplace(life),
    );
    making.set(id, mine);
    try {
      return await mine;
    } finally {
      if (making.get(id) === mine) making.delete(id);
    }
  }

  async function makeWorkplace(life: Life): Promise<string | null> {
    const { run, spec } = life.assignment;
    const mode = worktreeOf(run.target) === "required" ? "required" : "auto";
    const name = run.loopName ?? run.kind;
    // The tree stands for where the workflow works, wherever in it the step does.
    const cwd = spec?.base ?? run.target.cwd;
    const path = worktrees.place({ runId: run.id, name, cwd });
    let record = await weather.persist("worktrees.begin", () =>
      store.worktrees.begin({ runId: run.id, hostId, cwd, path }),
    );
    if (record.state === "making") {
      const { signal } = life.unwanted;
      if (signal.aborted) return null;
      const order = {
        runId: run.id,
        name,
        cwd,
        mode,
        path: record.path,
        expected: filesOf(run.target.expect),
      } as const;
      const made = await worktrees.make(order, signal);
      const now = await weather.persist("worktrees.made", () => store.worktrees.made({ runId: run.id, made }));
      if (now === null) return null;
      record = now;
    }
    life.tree = record;
    return `${await worktrees.enter(record)}${beneath(cwd, run.target.cwd)}`;
  }

  /** The way from a folder to one in it. AppError `workspace`: it is not in it. */
  function beneath(base: string, folder: string): string {
    if (folder === base) return "";
    if (folder.startsWith(`${base.replace(/\/$/, "")}/`)) return `/${folder.slice(base.replace(/\/$/, "").length + 1)}`;
    throw new AppError("conflict", "workspace", `${folder} lies outside ${base}, of which its run has a worktree`, {
      hint: "Give the step worktree: off, or a cwd within the folder that the workflow runs in.",
    });
  }

  /** An agent with a tree of its own has no business in the checkout that it was made from. Nothing fails because that cannot be watched. */
  async function watchMain(record: WorktreeRecord, folder: string): Promise<void> {
    try {
      await worktrees.watch(record, folder);
    } catch (error) {
      if (error instanceof Halted) throw error;
      log("warn", "main_unwatched", { run: record.runId, message: String(error) });
    }
  }

  /** What an agent is started with: its prompt, the session that it goes on with or begins under, its account. */
  async function orderOf(
    life: Life,
    target: AgentTarget,
  ): Promise<{ readonly input: Uint8Array; readonly sessionId: string | null; readonly agent: AgentLaunch }> {
    const { account = null, before } = life.assignment;
    const traits = agents.traits(target.provider);
    const next = resumption(before, traits);
    const { how, sessionId: earlier } = next;
    const prompt = next.tellsTask ? await promptOf(target) : new Uint8Array();
    const input = inputOf(next, prompt);
    // The copy has an id that it says itself.
    if (earlier !== null && how === "fork")
      return { input, sessionId: null, agent: { account, session: { id: earlier, resume: true, fork: true } } };
    if (earlier !== null)
      return { input, sessionId: earlier, agent: { account, session: { id: earlier, resume: true } } };
    const id = uuidOf(random.bytes(16));
    return { input, sessionId: traits.presetSession ? id : null, agent: { account, session: { id, resume: false } } };
  }

  async function promptOf(target: AgentTarget): Promise<Uint8Array> {
    const { digest } = target.prompt;
    const kept = await weather.persist("prompts.get", () => store.prompts.get({ digest }));
    if (kept === null)
      throw new AppError("not_found", "prompt_gone", "the prompt of this target is not in the store any more");
    return bytesOfBase64(kept.content);
  }

  function variablesOf(life: Life): Record<string, string> {
    const { run, attempt, stepKey } = life.assignment;
    return {
      DROVER_RUN_ID: run.id,
      DROVER_STEP: stepKey,
      DROVER_ATTEMPT: String(attempt.number),
      DROVER_ATTEMPT_ID: attempt.id,
      DROVER_LOOP: run.loopName ?? "",
      DROVER_SLOT: run.slotAt === null ? "" : new Date(run.slotAt).toISOString(),
      DROVER_DEPTH: String(run.depth),
      DROVER_SOCKET: socket,
      DROVER_RUN_TOKEN: signToken({ runId: run.id, depth: run.depth }),
    };
  }

  return { workplace, prepare, unfit };
}

/** Files that expectations name. */
const filesOf = (expect: readonly string[]): readonly string[] =>
  expect.filter((one) => one.startsWith("file:")).map((one) => one.slice("file:".length));

/** What a person reads of a run is its message alone. */
const withHint = ({ message, hint }: AppError): string => (hint === undefined ? message : `${message}. ${hint}`);

const bytesOfBase64 = (text: string): Uint8Array => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** A version 4 UUID (RFC 9562, section 5.4). @param bytes 16 of them, of chance */
function uuidOf(bytes: Uint8Array): string {
  const hex = [...bytes]
    .map((byte, i) => (i === 6 ? (byte & 0x0f) | 0x40 : i === 8 ? (byte & 0x3f) | 0x80 : byte))
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
