/** What the operating system answers, as a sentence. */

/** By the code of the system; the words fit behind a path and "cannot be used:". */
const SYSTEM_WORDS: { readonly [code: string]: string } = {
  EACCES: "permission is denied",
  EPERM: "it is not permitted",
  ENOENT: "it is not there",
  EEXIST: "it is there already",
  ENOTDIR: "a part of its path is no folder",
  EISDIR: "it is a folder",
  EROFS: "its file system is read-only",
  ENOSPC: "its file system is full",
  EDQUOT: "the quota is used up",
  EMFILE: "too many files are open",
  ENFILE: "too many files are open on this host",
  EIO: "its disk has a fault",
  ENOEXEC: "it is no program for this host",
  E2BIG: "the arguments and the environment are too long",
};

/** `Error: EACCES: permission denied, open '/x'` becomes `/x cannot be used: permission is denied (EACCES)`; other text stays. */
export const inWords = (text: string): string =>
  text.replace(
    /(?:\w*Error: )?\b(E[A-Z0-9]{2,}): [^,'\n]+, \w+(?: '([^'\n]*)')?(?: -> '[^'\n]*')?/g,
    (found, code: string, path: string | undefined) => {
      const words = SYSTEM_WORDS[code];
      if (words === undefined) return found;
      return path === undefined ? `${words} (${code})` : `${path} cannot be used: ${words} (${code})`;
    },
  );
