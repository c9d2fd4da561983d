/** What some files declare together, read and checked as far as that goes without a store: all of it, or every problem. */
import { AppError, type Problem } from "../../core/errors.ts";
import type { AccountDraft } from "../../core/ports.ts";
import type { Provider } from "../../core/target.ts";
import { draftAccount } from "../accounts/account-draft.ts";
import { PROVIDERS } from "../accounts/agent-target.ts";
import { readSource } from "./declared-files.ts";
import { type FormReading, inFormWords, readAccountForm, readLoopForm } from "./declared-form.ts";
import { type DeclaredText, readDeclaredText } from "./declared-text.ts";
import { draftLoop, type LoopDraftOf } from "../loops/draft-loop.ts";
import { badInput } from "../fields.ts";
import { checkResource } from "../limits/limit-resource.ts";
import { nearest } from "../../core/nearest.ts";
import type { StoreContext } from "../operation.ts";
import { readBytes } from "../source.ts";

/** Something that a file declares. */
interface Declared {
  readonly file: string;
  /** Its place in the file: `loops.nightly`. */
  readonly path: string;
}
export interface DeclaredLoop extends Declared {
  readonly draft: LoopDraftOf;
}
export interface DeclaredAccount extends Declared {
  readonly draft: AccountDraft;
  readonly id: string;
}
export interface DeclaredLimit extends Declared {
  readonly resource: string;
  readonly limit: number;
}

export interface Declaration {
  readonly loops: readonly DeclaredLoop[];
  readonly accounts: readonly DeclaredAccount[];
  readonly limits: readonly DeclaredLimit[];
  /** Content of each prompt by its digest, in base64. */
  readonly prompts: ReadonlyMap<string, string>;
  /** An error about something declared, as a problem at its place. @param path within it: `agent.model` */
  problemAt(of: Declared, error: AppError): Problem;
}

type Around = Pick<StoreContext, "settings" | "isRoot" | "clock" | "hostZone" | "agents" | "places">;

export const VERSION = 1;
/** The parts of a file that are not there yet, and are refused by name. */
const LATER = ["workflows", "pools", "routes"];
const SECTIONS = ["version", "loops", "accounts", "limits"];
/** Loops drafted before others have a turn. */
const AT_ONCE = 100;

const join = (...parts: readonly string[]): string => parts.filter((part) => part !== "").join(".");

/** Reads files. @param home what `~/` stands for @param onRead told of each file beside them that is read or missed. Errors: AppError of files that cannot be read; invalid `bad_declaration` with every problem. */
export async function readDeclaration(
  context: Around,
  files: readonly string[],
  home: string | undefined,
  onRead: (file: string) => void = () => {},
): Promise<Declaration> {
  const { declaredBytes, declaredPromptBytes } = context.settings.limits;
  const texts = new Map<string, DeclaredText>();
  const problems: Problem[] = [];
  const loops: DeclaredLoop[] = [];
  const accounts: DeclaredAccount[] = [];
  const limits: DeclaredLimit[] = [];
  const prompts = new Map<string, string>();
  const files64 = new Map<string, string>();
  let promptBytes = 0;

  const problemAt = ({ file, path }: Declared, error: AppError): Problem => {
    const whole = join(path, error.path ?? "");
    const { code, message, hint } = error;
    const place = texts.get(file)?.locate(whole) ?? { line: 1, column: 1 };
    return { code, message, ...(hint === undefined ? {} : { hint }), path: whole, file, ...place };
  };
  const tell = (at: Declared, error: AppError): void => void problems.push(problemAt(at, error));

  const readPrompt = (file: string, path: string): string => {
    onRead(file);
    const known = files64.get(file);
    if (known !== undefined) return known;
    try {
      const read = readBytes(file, path);
      files64.set(file, read);
      return read;
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "file_not_found") throw error;
      throw new AppError(error.kind, error.code, error.message, {
        path,
        hint: "Check its spelling; a relative name is looked for beside the file that names it.",
      });
    }
  };

  async function readLoops(file: string, given: unknown, reading: FormReading): Promise<void> {
    const names = new Map(loops.map((one) => [one.draft.name, one]));
    for (const [index, [name, form]] of entriesIn(file, "loops", given, tell).entries()) {
      if (index % AT_ONCE === AT_ONCE - 1) await new Promise(setImmediate);
      const at = { file, path: `loops.${name}` };
      const { input, faults } = readLoopForm(form, reading);
      if (input === null) {
        for (const fault of faults) tell(at, fault);
        continue;
      }
      const { draft, faults: wrong } = await draftLoop(context, name, input);
      if (draft === null) {
        for (const fault of wrong) tell(at, inFormWords(fault, "loop"));
        continue;
      }
      const other = names.get(name);
      if (other !== undefined) {
        tell(at, twice("loop", name, other, texts));
        continue;
      }
      const { prompt } = draft.target;
      if (prompt !== null && !prompts.has(prompt.ref.digest)) {
        prompts.set(prompt.ref.digest, prompt.content);
        promptBytes += prompt.ref.bytes;
        if (promptBytes > declaredPromptBytes && promptBytes - prompt.ref.bytes <= declaredPromptBytes)
          tell(
            at,
            badInput(
              "agent",
              `the prompts up to here hold more than ${declaredPromptBytes} bytes together`,
              "Apply the files one after another, or put what is long into files that the prompts name.",
              "prompts_too_large",
            ),
          );
      }
      // The content is kept once.
      loops.push({
        ...at,
        draft: {
          ...draft,
          target: { ...draft.target, prompt: prompt && { ...prompt, content: prompts.get(prompt.ref.digest) ?? "" } },
        },
      });
    }
  }

  async function readAccounts(file: string, given: unknown, reading: FormReading): Promise<void> {
    for (const [id, form] of entriesIn(file, "accounts", given, tell)) {
      const at = { file, path: `accounts.${id}` };
      const [provider = "", name, ...more] = id.split(":");
      if (name === undefined || more.length > 0 || !PROVIDERS.includes(provider as Provider)) {
        tell(
          at,
          badInput(
            "",
            `${JSON.stringify(id)} is no account`,
            `Write it as PROVIDER:NAME, as in claude:work; providers are ${PROVIDERS.join(", ")}.`,
            "bad_name",
          ),
        );
        continue;
      }
      const { input, faults } = readAccountForm(form ?? {}, reading);
      if (input === null) {
        for (const fault of faults) tell(at, fault);
        continue;
      }
      const other = accounts.find((one) => one.id === id);
      try {
        if (other !== undefined) throw twice("account", id, other, texts);
        accounts.push({ ...at, id, draft: await draftAccount(context, provider as Provider, name, input) });
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        tell(at, inFormWords(error, "account"));
      }
    }
  }

  function readLimits(file: string, given: unknown): void {
    for (const [resource, limit] of entriesIn(file, "limits", given, tell)) {
      const at = { file, path: `limits.${resource}` };
      const other = limits.find((one) => one.resource === resource);
      try {
        checkResource(resource);
        if (other !== undefined) throw twice("limit", resource, other, texts);
        if (typeof limit !== "number" || !Number.isSafeInteger(limit) || limit < 0 || limit > 1_000_000)
          throw badInput(
            "",
            `the limit of ${resource} must be a whole number`,
            "Give a whole number from 0 to 1000000.",
          );
        limits.push({ ...at, resource, limit });
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        const { kind, code, message, hint } = error;
        tell(at, new AppError(kind, code, message, hint === undefined ? {} : { hint }));
      }
    }
  }

  for (const file of files) {
    const text = readDeclaredText(readSource(file, declaredBytes));
    texts.set(file, text);
    for (const problem of text.problems) problems.push({ ...problem, file });
    if (text.value === undefined) continue;
    const top = { file, path: "" };
    const { value } = text;
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      tell(top, badInput("", "the file must hold sections", "Begin it with `version: 1`, then `loops:`."));
      continue;
    }
    const said = value as { readonly [key: string]: unknown };
    if (said["version"] === undefined)
      tell(top, badInput("", "there is no version", "Begin the file with `version: 1`.", "missing_value"));
    else if (said["version"] !== VERSION)
      tell(
        top,
        badInput(
          "version",
          `there is no version ${JSON.stringify(said["version"])} of this file`,
          `This drover reads version ${VERSION}.`,
          "unsupported_version",
        ),
      );
    for (const key of Object.keys(said)) {
      if (SECTIONS.includes(key)) continue;
      const near = nearest(key, SECTIONS);
      tell(
        top,
        LATER.includes(key)
          ? badInput(key, `${key} are not available in this version`, "Leave them out.", "not_available")
          : badInput(
              key,
              `there is no section ${JSON.stringify(key)}`,
              near === null ? `Sections are ${SECTIONS.slice(1).join(", ")}.` : `Did you mean ${near}?`,
              "unknown_key",
            ),
      );
    }
    const reading: FormReading = {
      cwd: folderOf(file),
      readBytes: readPrompt,
      ...(home === undefined ? {} : { home }),
    };
    await readLoops(file, said["loops"], reading);
    await readAccounts(file, said["accounts"], reading);
    readLimits(file, said["limits"]);
  }
  for (const { id, draft, file, path } of accounts) {
    const limit = limits.find(({ resource }) => resource === `account:${id}`);
    if (limit !== undefined && draft.cap !== null)
      tell(
        { file, path },
        badInput("cap", `${id} has a cap here and a limit ${limit.path}`, "Give one of them.", "contradiction"),
      );
  }
  if (problems.length > 0) throw badDeclaration(problems, "invalid");
  return { loops, accounts, limits, prompts, problemAt };
}

const folderOf = (file: string): string => file.slice(0, file.lastIndexOf("/")) || "/";

/** The entries of a section; a section without content has none. */
function entriesIn(
  file: string,
  section: string,
  given: unknown,
  tell: (at: Declared, error: AppError) => void,
): readonly (readonly [name: string, value: unknown])[] {
  if (given === undefined || given === null) return [];
  if (typeof given === "object" && !Array.isArray(given)) return Object.entries(given);
  tell(
    { file, path: section },
    badInput("", `${section} must hold names with what they are`, "Write each as NAME: and its keys below."),
  );
  return [];
}

function twice(what: string, name: string, other: Declared, texts: ReadonlyMap<string, DeclaredText>): AppError {
  const { line } = texts.get(other.file)?.locate(other.path) ?? { line: 1 };
  return badInput(
    "",
    `the ${what} ${name} is declared twice, first in ${other.file}:${line}`,
    "Declare it once.",
    "declared_twice",
  );
}

const plural = (count: number, one: string): string => `${count} ${one}${count === 1 ? "" : "s"}`;

/** All that is wrong, as one error. Its kind is that of all of them where they share one. */
export function badDeclaration(problems: readonly Problem[], kind: AppError["kind"]): AppError {
  const files = new Set(problems.map(({ file }) => file));
  return new AppError(
    kind,
    problems.length === 1 ? (problems[0]?.code ?? "bad_declaration") : "bad_declaration",
    `${plural(problems.length, "problem")} in ${files.size === 1 ? [...files][0] : plural(files.size, "file")}; nothing was changed`,
    { problems },
  );
}
