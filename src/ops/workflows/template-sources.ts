/** Which workflow templates there are: the built-in ones, and a person's own in the configuration folder. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import { nearest } from "../../core/nearest.ts";
import { readSource } from "../declared/declared-files.ts";

export interface TemplateSource {
  readonly name: string;
  /** Where it lies; null of one that is built in. */
  readonly file: string | null;
  /** Why it cannot be used, whatever it says. */
  readonly fault: string | null;
  /** Errors: those of reading a file. */
  bytes(): Buffer;
}

/** The build puts the texts of the built-in ones here, by name, so that the bundle reads no folder beside it. */
declare const __DROVER_TEMPLATES__: Readonly<Record<string, string>> | undefined;

const ENDING = /\.(?:ya?ml|json)$/;

/** Names and texts of the built-in ones. */
function builtIn(): Readonly<Record<string, string>> {
  if (typeof __DROVER_TEMPLATES__ !== "undefined") return __DROVER_TEMPLATES__;
  const folder = new URL("./templates/", import.meta.url);
  return Object.fromEntries(
    readdirSync(folder)
      .toSorted()
      .map((file) => [file.replace(ENDING, ""), readFileSync(new URL(file, folder), "utf8")]),
  );
}

/**
 * All of them by name, the built-in ones first. Errors: AppError invalid `file_unreadable` where the folder cannot be read.
 * @param folder of a person's own
 */
export function listTemplates(folder: string, limits: Pick<Limits, "declaredBytes">): readonly TemplateSource[] {
  const texts = builtIn();
  const files = filesOf(folder).map((file) => ({ name: file.replace(ENDING, ""), path: join(folder, file) }));
  const own = files.map(({ name, path }): TemplateSource => {
    const twin = files.find((one) => one.name === name && one.path !== path);
    const fault = Object.hasOwn(texts, name)
      ? "a built-in template has this name: rename the file"
      : twin === undefined
        ? null
        : `${twin.path} has the same name: rename one of them`;
    return { name, file: path, fault, bytes: () => readSource(path, limits.declaredBytes) };
  });
  const ours = Object.entries(texts).map(([name, text]): TemplateSource => {
    return { name, file: null, fault: null, bytes: () => Buffer.from(text) };
  });
  return [...ours, ...own];
}

function filesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
      .filter((file) => ENDING.test(file) && !file.startsWith("."))
      .toSorted();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    if (code === "ENOENT") return [];
    throw new AppError("invalid", "file_unreadable", `the folder ${JSON.stringify(folder)} cannot be read (${code})`, {
      path: folder,
      hint: "Make it a folder that this user may read, or remove it.",
    });
  }
}

/** One by its name, whether it can be used or not. Errors: AppError not_found `template_not_found`. */
export function findTemplate(name: string, folder: string, limits: Pick<Limits, "declaredBytes">): TemplateSource {
  const all = listTemplates(folder, limits);
  const found = all.find((one) => one.name === name);
  if (found !== undefined) return found;
  const near = nearest(
    name,
    all.map((one) => one.name),
  );
  throw new AppError("not_found", "template_not_found", `there is no template ${JSON.stringify(name)}`, {
    path: "template",
    hint: near === null ? "`drover template ls` lists them." : `Did you mean ${near}?`,
  });
}
