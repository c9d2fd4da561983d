/** What operations can reach, for tests that give them a store of their own: agents that are installed, no outputs, no trees. */
import { defaultLimits } from "../src/core/limits.ts";
import type { Store } from "../src/core/ports.ts";
import type { AgentTools, Leftovers, OutputFiles, StoreContext, WorktreeTools } from "../src/ops/operation.ts";
import { placesOf } from "../src/ops/places.ts";

export const testOutput: OutputFiles = {
  read: async function* () {},
  follow: async function* () {},
  pathOf: () => "",
  scrub: async (_folder, text) => text,
  transcript: async function* () {},
  followTranscript: async function* () {},
};

/** Every provider is there and logged in. */
export const testAgents: AgentTools = {
  about: async (provider) => ({
    provider,
    program: provider === "custom" ? null : provider,
    install: null,
    tested: null,
    homeVariable: provider === "custom" ? null : `${provider.toUpperCase()}_HOME`,
    keys: provider === "custom" ? [] : [`${provider.toUpperCase()}_KEY`],
    secretKeys: provider === "custom" ? [] : [`${provider.toUpperCase()}_KEY`],
    promptLimits: provider === "codex" ? { utf8: true, characters: 1_048_576 } : null,
    commitsInCheckout: provider !== "codex",
    loginArgs: provider === "custom" ? null : ["login"],
    permissions: provider === "custom" ? ["workspace-write", "full"] : ["read-only", "workspace-write", "full"],
    capabilities: { resume: true, presetSession: true, usage: true, cost: true, jsonEvents: provider !== "custom" },
  }),
  find: async (provider) => ({ file: `/bin/${provider}`, version: "1.0.0", tested: true, fault: null }),
  probeLogin: async () => ({ loggedIn: true, detail: "" }),
};

const whole = { there: "whole", holds: [], commits: 0, diffStat: null } as const;
export const testTrees: WorktreeTools = {
  look: async () => whole,
  remove: async () => ({ removed: true, state: whole }),
  strays: async () => [],
  handOff: async () => {
    throw new Error("no branch is handed over here");
  },
  lacks: async () => false,
  isUnknown: async () => false,
};

/** Nothing is left over, and nothing is to be removed. */
export const testLeftovers: Leftovers = {
  attemptFolders: async () => [],
  removeFolder: async () => {},
  ofStore: async () => ({ unfinished: [], upgrades: [], replaced: [] }),
  remove: async () => {},
};

/** All that an operation on a store is given, beside a daemon that serves it. */
export const contextOf = (store: Store, clock: StoreContext["clock"]): StoreContext => ({
  clock,
  hostZone: "UTC",
  build: { version: "0.0.0", id: "test" },
  places: placesOf({ DROVER_HOME: "/h" }),
  settings: { store: "memory", limits: defaultLimits, all: [] },
  store,
  hostId: "host_x",
  caller: { by: "person", parentRunId: null },
  daemon: async () => ({ mode: "full" }),
  output: testOutput,
  findProgram: async () => "/bin/true",
  isFolder: () => true,
  isRoot: false,
  agents: testAgents,
  trees: testTrees,
  leftovers: testLeftovers,
});
