/** How answers show a service. */
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

export const findingShape = object({
  code: string,
  level: oneOf(["problem", "warning", "note"]),
  message: string,
  hint: string,
});

export const serviceShape = object({
  kind: oneOf(["systemd", "launchd"]),
  name: string,
  file: string,
  installed: boolean,
  ours: boolean,
  edited: boolean,
  /** null where the service manager cannot be asked; so are the next two. */
  enabled: nullable(boolean),
  state: nullable(oneOf(["active", "starting", "waiting", "stopping", "failed", "inactive"])),
  active: nullable(boolean),
  pid: nullable(integer),
  node: nullable(string),
  program: nullable(string),
  path: nullable(string),
  programMoved: boolean,
  otherProgram: boolean,
  pathLacks: listOf(string),
  linger: nullable(oneOf(["on", "off", "unknown"])),
  findings: listOf(findingShape),
});
