/** The system's tools that are used where they are there, each with what goes without it: for `doctor`. */
export const TOOLS: readonly { readonly name: string; readonly without: string }[] = [
  { name: "setsid", without: "processes are started in a slower way" },
  { name: "fallocate", without: "large logs are cut only when their run has ended" },
  { name: "git", without: "`--expect changes` and `--expect commit` cannot be judged" },
];
