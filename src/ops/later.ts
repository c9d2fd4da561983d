/**
 * Commands of the contract that do not exist yet. They are refused by name, as `not_available`, so that a script written for
 * a newer version is told that and not that it made a typing error. A line goes when its operation comes.
 */
const later: { readonly [command: string]: string } = {
  "workflow.ls": "workflows",
  "workflow.show": "workflows",
  "workflow.archive": "workflows",
  approve: "approvals",
  reject: "approvals",
  "event.send": "inbound events",
  "route.add": "routes",
  "route.ls": "routes",
  "route.show": "routes",
  "route.test": "routes",
  "route.pause": "routes",
  "route.resume": "routes",
  "route.rm": "routes",
  "queue.ls": "work items",
  "queue.show": "work items",
  "queue.requeue": "work items",
  "queue.cancel": "work items",
  "queue.hold": "work items",
  "queue.release": "work items",
  "queue.priority": "work items",
  "pool.set": "pools",
  "pool.ls": "pools",
  "import.github": "work items",
  "import.markdown": "work items",
};

/** The names of all of them. */
export const laterCommands: readonly string[] = Object.keys(later);

/**
 * What a command waits for that does not exist yet; null for any other word.
 * @param words one word for a noun (`queue`), whatever its verb; two for one command
 */
export function laterPart(words: readonly string[]): string | null {
  const name = words.join(".");
  const found = Object.hasOwn(later, name) ? name : laterCommands.find((one) => one.startsWith(`${name}.`));
  return found === undefined ? null : (later[found] ?? null);
}
