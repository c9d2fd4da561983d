/**
 * Entry of a writer's thread into which a note whose id is `fault:<where>:<what>` plants a fault: in its own statement, in
 * the commit of its group, or in the next group's begin.
 */
import { serveWriter } from "../../src/store/sqlite-thread.ts";
import { table } from "./table.ts";

const CODES: Readonly<Record<string, string>> = {
  full: "SQLITE_FULL",
  ioerr: "SQLITE_IOERR_WRITE",
  nomem: "SQLITE_NOMEM",
  busy: "SQLITE_BUSY",
};

serveWriter(table, {
  wrap(connection) {
    let armed: { readonly where: string; readonly what: string } | undefined;
    const strike = (where: string): void => {
      if (armed?.where !== where) return;
      const { what } = armed;
      armed = undefined;
      if (what === "exit") process.exit(7);
      if (what === "throw") setImmediate(() => Promise.reject(new Error("planted")));
      // These roll the whole transaction back by themselves.
      if (connection.inTransaction && what !== "busy") connection.exec("rollback");
      const code = CODES[what];
      if (code !== undefined) throw Object.assign(new Error(`planted ${what}`), { code });
    };
    return {
      library: connection.library,
      get inTransaction() {
        return connection.inTransaction;
      },
      exec(text) {
        if (text === "begin immediate") strike("begin");
        if (text === "commit") strike("commit");
        connection.exec(text);
      },
      query(text, values, instant) {
        const [, where = "", what = ""] = /^fault:(\w+):(\w+)/.exec(String(values[0])) ?? [];
        if (where !== "" && text.startsWith("insert into notes")) {
          if (what === "small") connection.pragma(`max_page_count = ${connection.pragma("page_count")}`);
          else armed = { where, what };
          strike("statement");
        }
        return connection.query(text, values, instant);
      },
      pragma: (text) => connection.pragma(text),
      close: () => connection.close(),
    };
  },
});
