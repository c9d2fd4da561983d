/** Every check of `doctor`, in the order in which they are told. To add one, add a line. */
import type { Check } from "../findings.ts";
import { accounts } from "./accounts.ts";
import { agents } from "./agents.ts";
import { backups } from "./backups.ts";
import { clock } from "./clock.ts";
import { daemon } from "./daemon.ts";
import { disk } from "./disk.ts";
import { folders } from "./folders.ts";
import { growth } from "./growth.ts";
import { limits } from "./limits.ts";
import { path } from "./path.ts";
import { processes } from "./processes.ts";
import { service } from "./service.ts";
import { store } from "./store.ts";
import { stuck } from "./stuck.ts";
import { worktrees } from "./worktrees.ts";

export const checks: readonly Check[] = [
  folders,
  store,
  daemon,
  service,
  clock,
  disk,
  limits,
  path,
  agents,
  accounts,
  processes,
  worktrees,
  stuck,
  growth,
  backups,
];
