import { required, text } from "../fields.ts";
import { findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { manifestOf, manifestShape } from "./manifest.ts";
import { answerRun } from "./run-answer.ts";

export const operation = defineOperation({
  name: "manifest",
  where: "read",
  summary: "Print a run's manifest: what was asked, by which definition, on which commit, with which result",
  input: { run: required(text("the run", { placeholder: "RUN", completes: "run" })) },
  output: manifestShape,
  cli: {
    positionals: ["run"],
    examples: ["manifest 8x2mq1", "manifest 8x2mq1 --json"],
    notes: [
      "It is JSON for people too, and holds no secret. The digest is the same for as long as the run is kept, once it has",
      "ended; the receipt behind it is a bounded summary with what proves it.",
    ],
  },
  async run(context, input) {
    const shown = await answerRun(context, await findRun(context.store, input.run));
    return manifestOf(shown, context.settings.limits);
  },
});
