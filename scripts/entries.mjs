// @ts-check
/**
 * Where the program can be entered: the files that `drover` runs, and one file for each thread it starts.
 * Each becomes a file of the same name in `dist/`; `drover.js` there starts `loader`, which loads `main`. The build, the
 * dead-code check and the tidy test read this list; a new worker is one line here.
 * @type {readonly { readonly source: string, readonly output: string, readonly isProgram: boolean }[]}
 */
export const entries = [
  { source: "src/main.ts", output: "main", isProgram: true },
  { source: "src/main/loader.ts", output: "loader", isProgram: true },
  { source: "src/store/sqlite-writer.ts", output: "sqlite-writer", isProgram: false },
  { source: "src/store/postgres-heartbeat.ts", output: "postgres-heartbeat", isProgram: false },
];
