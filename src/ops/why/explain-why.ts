import { AppError } from "../../core/errors.ts";
import type { AccountView } from "../../core/ports.ts";
import type { LoopRecord, RunTree } from "../../core/records.ts";
import { required, text } from "../fields.ts";
import { candidates, findLoop, findRun, tooShort } from "../find.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { whyAccount } from "./why-account.ts";
import { type Why, whyShape } from "./why-answer.ts";
import { whyLoop, whySlot } from "./why-loop.ts";
import { whyRun } from "./why-run.ts";

export const operation = defineOperation({
  name: "why",
  where: "read",
  summary: "Say in one sentence why something waits, was skipped, was missed, failed or ran, and what mends it",
  input: {
    thing: required(
      text("a run, an attempt or a step by its id, a loop, a slot as LOOP@TIME, or an account", {
        placeholder: "THING",
        completes: "thing",
      }),
    ),
  },
  output: whyShape,
  cli: {
    positionals: ["thing"],
    examples: ["why 8x2mq1", "why fetch", "why fetch@2026-05-01T02:30", "why claude:work"],
  },
  async run(context, input): Promise<Why> {
    const found = await findThing(context, input.thing);
    switch (found.kind) {
      case "run":
        return whyRun(context, found.tree);
      case "loop":
        return whyLoop(context, found.loop);
      case "account":
        return whyAccount(context, found.view);
      case "slot":
        return whySlot(context, found.loop, found.time);
    }
  },
});

type Thing =
  | { readonly kind: "run"; readonly tree: RunTree }
  | { readonly kind: "loop"; readonly loop: LoopRecord }
  | { readonly kind: "account"; readonly view: AccountView }
  | { readonly kind: "slot"; readonly loop: LoopRecord; readonly time: string };

async function findThing(context: StoreContext, ref: string): Promise<Thing> {
  const { store } = context;
  const [loops, runs] = await Promise.all((["loop", "run"] as const).map((kind) => candidates(store, kind, ref, 11)));
  const named = (loops ?? []).filter((one) => one.name === ref);
  if (named.length === 1 || (loops?.length === 1 && runs?.length === 0))
    return { kind: "loop", loop: await findLoop(store, named[0]?.id ?? loops?.[0]?.id ?? ref, "thing") };
  if (loops?.length === 0 && runs !== undefined && runs.length > 0)
    return { kind: "run", tree: await findRun(store, ref, "thing") };
  const all = [...(loops ?? []), ...(runs ?? [])];
  if (all.length > 0)
    throw new AppError("conflict", "ambiguous", `${JSON.stringify(ref)} may mean several things`, {
      path: "thing",
      hint: `Say which: ${all.map((one) => (one.name === null ? one.id : `${one.id} (${one.name})`)).join(", ")}.`,
    });
  // A part of a run is explained by its run.
  for (const kind of ["attempt", "step"] as const) {
    const [run] = await store.things.resolve({ kind, ref, limit: 1 });
    if (run !== undefined) return { kind: "run", tree: await findRun(store, run.id, "thing") };
  }
  if (/^[a-z]+:[a-z0-9._-]+$/.test(ref)) {
    const { findAccount } = await import("../accounts/account-find.ts");
    const { PROVIDERS } = await import("../accounts/agent-target.ts");
    return { kind: "account", view: await findAccount(store, ref, PROVIDERS, "thing") };
  }
  const at = ref.lastIndexOf("@");
  if (at > 0) return { kind: "slot", loop: await findLoop(store, ref.slice(0, at), "thing"), time: ref.slice(at + 1) };
  throw new AppError("not_found", "thing_not_found", `there is no run and no loop ${JSON.stringify(ref)}`, {
    path: "thing",
    hint: tooShort(ref) ?? "`drover runs` and `drover loop ls` list them; a slot is LOOP@TIME.",
  });
}
