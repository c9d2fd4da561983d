/** What an agent said and did, for people: one entry after another, with nothing in it that a terminal would obey. */
import type { TranscriptEntry, Usage } from "../../core/agent.ts";
import type { Screen } from "../screen.ts";
import { inertText } from "../text.ts";
import { time } from "./words.ts";

/** Lines of a tool's input or answer that are shown; the rest is in the transcript as JSON and in the raw log. */
const TOOL_LINES = 12;

const indented = (text: string): string => inertText(text.trimEnd()).replaceAll("\n", "\n    ");

function shortened(text: string): string {
  const lines = text.trimEnd().split("\n");
  return lines.length <= TOOL_LINES
    ? text
    : [...lines.slice(0, TOOL_LINES), `[... ${lines.length - TOOL_LINES} more lines ...]`].join("\n");
}

const COUNTED = { attempts: ", with attempts before that stated none", session: ", of the whole session" } as const;

/** `1234 and 900 cached in, 56 out, $0.02`; unknown money is left out, never 0. */
export function usageText({ inputTokens, cachedInputTokens, outputTokens, costUsd, of, costOf }: Usage): string {
  const cached = cachedInputTokens > 0 ? ` and ${cachedInputTokens} cached` : "";
  const whole = costOf === "session" && of === undefined ? " of the whole session" : "";
  const cost = costUsd === null ? "" : `, $${costUsd.toFixed(costUsd < 1 ? 4 : 2)}${whole}`;
  return `${inputTokens}${cached} in, ${outputTokens} out${cost}${of === undefined ? "" : COUNTED[of]}`;
}

/** One entry as lines with their ends. */
export function entryText(entry: TranscriptEntry, screen: Screen): string {
  const cut = entry.cutBytes === undefined ? "" : screen.dim(` [... ${entry.cutBytes} bytes left out ...]`);
  const line = (mark: string, text: string): string => `${mark} ${indented(text)}${cut}\n`;
  switch (entry.kind) {
    case "session":
      return line(screen.dim("session"), `${entry.sessionId}${entry.model === null ? "" : `, ${entry.model}`}`);
    case "text":
      return line(screen.bold("agent"), entry.text);
    case "thinking":
      return line(screen.dim("thinks"), entry.text);
    case "tool_call":
      return line(screen.good(`calls ${inertText(entry.tool)}`), shortened(entry.input));
    case "tool_result":
      return line(entry.ok ? screen.dim("gets") : screen.bad("fails"), shortened(entry.text));
    case "usage":
      return line(screen.dim("usage"), usageText(entry.usage));
    case "limit":
      return line(
        screen.warn("limit"),
        entry.resetAt === null ? entry.text : `${entry.text} (until ${time(new Date(entry.resetAt).toISOString())})`,
      );
    case "error":
      return line(entry.final ? screen.bad("error") : screen.warn("error"), entry.text);
    case "result":
      return line(entry.ok ? screen.good("result") : screen.bad("result"), entry.text);
    case "note":
      return line(screen.dim("note"), entry.text);
  }
}
