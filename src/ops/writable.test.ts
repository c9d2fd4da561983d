import { expect, test } from "vitest";
import { type WriteProbe, writeFaults } from "./writable.ts";

const probe = (entries: Record<string, { uid?: number; folder?: boolean; refusal?: string }>): WriteProbe => ({
  refusal: (path) => entries[path]?.refusal ?? null,
  stat: (path) => {
    const found = entries[path];
    return found === undefined ? null : { isFolder: found.folder === true, uid: found.uid ?? 1000 };
  },
  uid: 1000,
});

test("what can be written is no fault, and what is not there yet is asked of the folder above", () => {
  expect(writeFaults(["/s/runs"], ["/s/new/deep"], probe({ "/": {}, "/s": {}, "/s/runs": { folder: true } }))).toEqual(
    [],
  );
  const faults = writeFaults(["/s/a"], ["/s/b"], probe({ "/s": { folder: true, refusal: "EACCES" } }));
  expect(faults).toEqual([{ path: "/s", message: "/s/a cannot be made in /s", hint: "chmod u+rwx /s" }]);
});

test("nobody is told to take a folder of the system: the own one is made in it", () => {
  const faults = writeFaults(["/none/drover"], [], probe({ "/": { folder: true, refusal: "EACCES", uid: 0 } }));
  expect(faults).toEqual([
    { path: "/", message: "/none/drover cannot be made in /", hint: "sudo install -d -o 1000 -m 700 /none/drover" },
  ]);
});

test.each([
  ["a file of ours", { refusal: "EACCES" }, "chmod u+rw '/s/a b'"],
  ["a file of another user", { refusal: "EACCES", uid: 0 }, "sudo chown 1000 '/s/a b'"],
  ["a protected file", { refusal: "EPERM" }, "It is protected: chattr -i '/s/a b'"],
  ["a read-only file system", { refusal: "EROFS" }, expect.stringContaining("mount it for writing")],
])("the hint mends %s", (_what, entry, hint) => {
  expect(writeFaults([], ["/s/a b"], probe({ "/s/a b": entry }))[0]?.hint).toEqual(hint);
});

test("a file in a folder's place is found", () => {
  expect(writeFaults(["/s/runs"], [], probe({ "/s/runs": {} }))).toEqual([
    { path: "/s/runs", message: "/s/runs is no folder", hint: "mv /s/runs /s/runs.old" },
  ]);
});
