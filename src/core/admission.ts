/** Who may start now. The admission pass, `why` and the simulator call the same function. */
import type { Instant } from "./ports.ts";
import type { AccountStatus } from "./records.ts";

export interface HostView {
  readonly id: string;
  /** `up` takes work; `draining`, `disk` and `down` do not. */
  readonly status: "up" | "draining" | "disk" | "down";
  readonly leaseUntil: Instant;
}

export interface CapSet {
  readonly key: string;
  /** Resources of which one unit each is claimed. */
  readonly resources: readonly string[];
  /** The only host that may run it; null for any. */
  readonly hostPin: string | null;
}

export interface AccountState {
  readonly enabled: boolean;
  readonly status: AccountStatus;
}

export interface Hold {
  /** As the resource is called: `account:claude:work`, `provider:claude`. */
  readonly subject: string;
  readonly untilAt: Instant | null;
  readonly reason: string;
}

/** A ready step at the head of its cap set. */
export interface Head {
  readonly stepId: string;
  readonly runId: string;
  readonly capKey: string;
  readonly turnAt: Instant;
}

export interface AdmissionView {
  readonly hosts: readonly HostView[];
  readonly limits: ReadonlyMap<string, number>;
  readonly used: ReadonlyMap<string, number>;
  readonly sets: readonly CapSet[];
  /** Accounts that have a row, and holds that are on. Absent: none. */
  readonly accounts?: ReadonlyMap<string, AccountState>;
  readonly holds?: readonly Hold[];
  readonly heads: readonly Head[];
}

/** Why something that is ready does not start: a closed set, with numbers. */
export type Refusal =
  | { readonly code: "cap"; readonly resource: string; readonly used: number; readonly limit: number }
  | { readonly code: "host_disk" | "host_draining" | "host_down"; readonly hostId: string }
  | { readonly code: "no_host" }
  /** Somebody or a limit holds the account or the provider back; `untilAt` null: until a person releases it. */
  | { readonly code: "held"; readonly subject: string; readonly untilAt: Instant | null; readonly reason: string }
  | { readonly code: "account_disabled" | "account_missing"; readonly accountId: string }
  /** The account was at a limit: one attempt finds out whether it is over, the others wait for that. */
  | { readonly code: "probing"; readonly accountId: string; readonly status: "throttled" | "quota" }
  /** Others stand before it; the next pass follows at once. */
  | { readonly code: "turn" };

export interface Grant {
  readonly stepId: string;
  readonly runId: string;
  readonly hostId: string;
  readonly resources: readonly string[];
}

export interface Admission {
  readonly grants: readonly Grant[];
  readonly refused: ReadonlyMap<string, Refusal>;
}

/** Why no step of this set could start whoever stood at its head; null when one can. */
export function refusalOf(
  set: CapSet,
  view: Pick<AdmissionView, "hosts" | "limits" | "accounts" | "holds">,
  used: ReadonlyMap<string, number>,
  now: Instant,
): Refusal | null {
  const host = hostFor(set, view.hosts, now);
  if ("code" in host) return host;
  for (const resource of set.resources) {
    const refusal = ofAccount(resource, view, used) ?? heldBack(resource, view.holds);
    if (refusal !== null) return refusal;
    // Who writes in a folder that is not his own has it alone, and who holds a lock, unless a limit says otherwise.
    const isAlone = resource.startsWith(FOLDER) || resource.startsWith(LOCK);
    const limit = view.limits.get(resource) ?? (isAlone ? 1 : undefined);
    const taken = used.get(resource) ?? 0;
    if (limit !== undefined && taken >= limit) return { code: "cap", resource, used: taken, limit };
  }
  return null;
}

const ACCOUNT = "account:";
const FOLDER = "folder:";
const LOCK = "lock:";

/** Why nothing may start under an account that it names; null when something may, or it names none. */
function ofAccount(
  resource: string,
  { accounts, holds }: Pick<AdmissionView, "accounts" | "holds">,
  used: ReadonlyMap<string, number>,
): Refusal | null {
  if (!resource.startsWith(ACCOUNT)) return null;
  const accountId = resource.slice(ACCOUNT.length);
  const account = accounts?.get(accountId);
  // The user's own login is there without a row.
  if (account === undefined) return accountId.endsWith(":default") ? null : { code: "account_missing", accountId };
  if (!account.enabled) return { code: "account_disabled", accountId };
  const { status } = account;
  if ((status === "throttled" || status === "quota") && (used.get(resource) ?? 0) > 0)
    return heldBack(resource, holds) ?? { code: "probing", accountId, status };
  return null;
}

/** The hold that lasts longest. */
function heldBack(subject: string, holds: readonly Hold[] | undefined): Refusal | null {
  const end = (hold: Hold) => hold.untilAt ?? Number.POSITIVE_INFINITY;
  let longest: Hold | null = null;
  for (const hold of holds ?? [])
    if (hold.subject === subject && (longest === null || end(hold) > end(longest))) longest = hold;
  return longest === null ? null : { code: "held", ...longest };
}

function hostFor(set: CapSet, hosts: readonly HostView[], now: Instant): HostView | Refusal {
  const able = (host: HostView) => host.status === "up" && host.leaseUntil > now;
  if (set.hostPin === null)
    return hosts.filter(able).toSorted((a, b) => (a.id < b.id ? -1 : 1))[0] ?? { code: "no_host" };
  const host = hosts.find((one) => one.id === set.hostPin);
  if (host === undefined || host.status === "down" || host.leaseUntil <= now)
    return { code: "host_down", hostId: set.hostPin };
  if (host.status === "disk") return { code: "host_disk", hostId: host.id };
  if (host.status === "draining") return { code: "host_draining", hostId: host.id };
  return host;
}

/**
 * Grants in the order of turns while there is room; one that lacks room never holds back another that has it.
 * The answer does not depend on the order of rows.
 */
export function admit(view: AdmissionView, now: Instant, max: number): Admission {
  const sets = new Map(view.sets.map((set) => [set.key, set]));
  const used = new Map(view.used);
  const grants: Grant[] = [];
  const refused = new Map<string, Refusal>();
  const inTurn = view.heads.toSorted((a, b) => a.turnAt - b.turnAt || (a.stepId < b.stepId ? -1 : 1));
  for (const head of inTurn) {
    const set = sets.get(head.capKey);
    if (set === undefined) continue;
    if (grants.length >= max) {
      refused.set(head.stepId, { code: "turn" });
      continue;
    }
    const refusal = refusalOf(set, view, used, now);
    if (refusal !== null) {
      refused.set(head.stepId, refusal);
      continue;
    }
    const host = hostFor(set, view.hosts, now);
    if ("code" in host) continue;
    for (const resource of set.resources) used.set(resource, (used.get(resource) ?? 0) + 1);
    grants.push({ stepId: head.stepId, runId: head.runId, hostId: host.id, resources: set.resources });
  }
  return { grants, refused };
}

/** A refusal as a sentence's end. */
export function describeRefusal(refusal: Refusal): string {
  switch (refusal.code) {
    case "cap":
      if (refusal.resource.startsWith(FOLDER))
        return `the folder ${refusal.resource.slice(FOLDER.length)} is busy: ${refusal.used === 1 ? "another agent writes" : `${refusal.used} agents write`} in it`;
      if (refusal.resource.startsWith(LOCK) && refusal.limit === 1)
        return `another step holds the lock ${refusal.resource.slice(LOCK.length)}`;
      return `${refusal.resource.split(":").at(-1)} cap ${refusal.used}/${refusal.limit} of ${refusal.resource} is reached`;
    case "host_disk":
      return "the host is short of free disk space, so nothing starts there";
    case "host_draining":
      return "the daemon of its host is going down and takes no new work";
    case "host_down":
      return "the daemon of its host is not running";
    case "held":
      return `${refusal.subject.replace(/^account:/, "").replace(/^provider:/, "the provider ")} is held ${refusal.untilAt === null ? "until it is released" : `until ${new Date(refusal.untilAt).toISOString()}`}: ${refusal.reason}`;
    case "account_disabled":
      return `the account ${refusal.accountId} is disabled`;
    case "account_missing":
      return `there is no account ${refusal.accountId}`;
    case "probing":
      return `${refusal.accountId} was at a limit (${refusal.status}), and one attempt finds out whether that is over`;
    case "no_host":
      return "no host with a running daemon takes work";
    case "turn":
      return "others stand before it in the queue";
  }
}
