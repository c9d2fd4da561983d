/** A launchd agent: its property list, and reading it back. */
import { basename } from "node:path";
import type { ServicePlan } from "./service-plan.ts";
import { type ReadServiceFile, signatureOf, signed } from "./service-file.ts";

const HEAD = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
`;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};
const escaped = (text: string): string => text.replaceAll(/[&<>"']/g, (one) => ENTITIES[one] ?? one);
const plain = (text: string): string =>
  text.replaceAll(
    /&(amp|lt|gt|quot|apos);/g,
    (whole) => Object.entries(ENTITIES).find(([, as]) => as === whole)?.[0] ?? whole,
  );

type Value = string | number | boolean | readonly string[] | { readonly [key: string]: Value };

function xml(value: Value, indent: string): string {
  const deeper = `${indent}  `;
  if (typeof value === "string") return `${indent}<string>${escaped(value)}</string>\n`;
  if (typeof value === "number") return `${indent}<integer>${value}</integer>\n`;
  if (typeof value === "boolean") return `${indent}<${value}/>\n`;
  if (Array.isArray(value))
    return `${indent}<array>\n${value.map((one: string) => xml(one, deeper)).join("")}${indent}</array>\n`;
  const entries = Object.entries(value)
    .map(([key, one]) => `${deeper}<key>${escaped(key)}</key>\n${xml(one as Value, deeper)}`)
    .join("");
  return `${indent}<dict>\n${entries}${indent}</dict>\n`;
}

/** The property list's text. */
export function plistText(plan: ServicePlan): string {
  const seconds = (ms: number): number => Math.ceil(ms / 1_000);
  const list = {
    Label: plan.name,
    ProgramArguments: [plan.node, ...plan.args],
    EnvironmentVariables: plan.env,
    WorkingDirectory: "/",
    // Loaded and enabled are two things: without --enable it waits for \`launchctl enable\`.
    Disabled: true,
    RunAtLoad: true,
    // A wanted end is 0 and stays; every other one is started again.
    KeepAlive: { SuccessfulExit: false },
    ThrottleInterval: seconds(plan.restartMs),
    // Runs outlive the daemon: launchd ends a job's whole process group without this.
    AbandonProcessGroup: true,
    ExitTimeOut: seconds(plan.stopLimitMs),
    StandardOutPath: plan.outputFile,
    StandardErrorPath: plan.outputFile,
  };
  return signed(`<plist version="1.0">\n${xml(list, "")}</plist>\n`, (text) => `<!-- ${text} -->`, HEAD);
}

/** Reads a property list as drover writes them; of another one as much as can be told. */
export function readPlist(text: string): ReadServiceFile {
  const strings = (part: string): string[] =>
    [...part.matchAll(/<string>([^<]*)<\/string>/g)].map(([, one = ""]) => plain(one));
  const after = (key: string, element: string): string =>
    new RegExp(`<key>${key}</key>\\s*<${element}>([^]*?)</${element}>`).exec(text)?.[1] ?? "";
  const env: Record<string, string> = {};
  for (const [, key = "", value = ""] of after("EnvironmentVariables", "dict").matchAll(
    /<key>([^<]*)<\/key>\s*<string>([^<]*)<\/string>/g,
  ))
    env[plain(key)] = plain(value);
  return { ...signatureOf(text), words: strings(after("ProgramArguments", "array")), env };
}

/** The file of an agent in its folder. */
export const plistFile = (folder: string, name: string): string => `${folder}/${basename(name)}.plist`;
