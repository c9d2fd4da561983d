/** Every provider that there is an adapter for: one line each. */
import type { Provider } from "../../core/target.ts";
import type { Adapter } from "./adapter.ts";
import { claude } from "./claude.ts";
import { codex } from "./codex.ts";
import { custom } from "./custom.ts";

export const adapters: { readonly [P in Provider]: Adapter } = { claude, codex, custom };

/** The adapter of a provider. */
export const adapterOf = (provider: Provider): Adapter => adapters[provider];
