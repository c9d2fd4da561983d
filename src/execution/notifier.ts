import type { Notifier } from "../core/ports.ts";
import { composeEnvironment } from "./environment.ts";
import { runErrand } from "./errand.ts";
import { makeInert } from "./inert.ts";
import { openProcessTable } from "./processes.ts";

export interface NotifierOptions {
  /** The daemon's own environment, of which hooks get the allow-list. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly shell?: string;
  /** How much of what a hook printed last is answered. */
  readonly tailBytes?: number;
}

const TAIL_BYTES = 4096;

/** Runs hooks: each a tree of its own, ended as a whole at its limit, whatever it left in the background. */
export function openNotifier({
  environment = process.env,
  shell = "/bin/sh",
  tailBytes = TAIL_BYTES,
}: NotifierOptions = {}): Notifier {
  const table = openProcessTable();
  return {
    async hook(hook) {
      try {
        const composed = composeEnvironment({
          daemon: environment,
          target: { env: {}, envPass: [] },
          secrets: {},
          variables: hook.variables,
        });
        const end = await runErrand(
          {
            argv: [shell, "-c", hook.shell],
            cwd: hook.cwd,
            environment: composed,
            input: hook.input,
            timeoutMs: hook.timeoutMs,
            keepBytes: tailBytes,
            keep: "tail",
          },
          table,
        );
        const tail = makeInert(Buffer.concat([end.stdout, end.stderr]).subarray(-tailBytes).toString());
        return { exit: end.exit, tail: end.fault ?? tail };
      } catch (error) {
        // A hook's failure is told, never thrown: the run that it speaks of is settled already.
        return { exit: null, tail: error instanceof Error ? error.message : String(error) };
      }
    },
  };
}
