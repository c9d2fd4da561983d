// @ts-check
/**
 * Where the program can be entered: the file that `drover` runs, and one file for each thread it starts.
 * Each becomes a file of the same name in `dist/`; `drover.js` there starts `main`. The build, the dead-code check and the
 * tidy test read this list; a new worker is one line here.
 * @type {readonly { readonly source: string, readonly output: string }[]}
 */
export const entries = [
  { source: "src/main.ts", output: "main" },
  { source: "src/store/sqlite-writer.ts", output: "sqlite-writer" },
  { source: "src/store/postgres-heartbeat.ts", output: "postgres-heartbeat" },
];
