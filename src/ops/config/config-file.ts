/** Reads `config.yaml` as keys and values with their lines. Apart from the settings, because only a file that is there needs YAML. */
import { isMap, isScalar, LineCounter, parseDocument } from "yaml";
import type { Problem } from "./settings.ts";

export interface Entry {
  readonly key: string;
  readonly value: unknown;
  readonly line: number;
}

/** The leaves of the file with their lines, one section deep. */
export function entriesOf(text: string, problems: Problem[]): readonly Entry[] {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  for (const error of document.errors)
    problems.push({
      level: "error",
      line: lines.linePos(error.pos[0]).line,
      key: null,
      message: error.message.split(/ at line |\n/, 1)[0] ?? "not YAML",
    });
  if (document.errors.length > 0) return [];
  const entries: Entry[] = [];
  const walk = (node: unknown, prefix: string): void => {
    if (!isMap(node)) {
      problems.push({
        level: "error",
        line: 1,
        key: prefix || null,
        message: "the file must hold settings as key: value",
      });
      return;
    }
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : "?";
      const line = lines.linePos((isScalar(key) ? key.range?.[0] : undefined) ?? 0).line;
      const full = prefix === "" ? name : `${prefix}.${name}`;
      if (prefix === "" && (name === "limits" || name === "caps")) {
        if (isMap(value)) walk(value, name);
        else if (!isScalar(value) || value.value !== null)
          problems.push({ level: "error", line, key: name, message: `${name} must hold settings as key: value` });
      } else entries.push({ key: full, value: isScalar(value) ? value.value : null, line });
    }
  };
  if (document.contents !== null) walk(document.contents, "");
  return entries;
}
