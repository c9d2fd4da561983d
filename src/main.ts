/**
 * The entry. What it puts together is in `main/`, which sees everyone and which nobody sees. `--version` loads nothing.
 */

declare const __DROVER_VERSION__: string | undefined;
declare const __DROVER_BUILD__: string | undefined;

const build = {
  version: typeof __DROVER_VERSION__ === "string" ? __DROVER_VERSION__ : "0.0.0",
  id: typeof __DROVER_BUILD__ === "string" ? __DROVER_BUILD__ : "source",
};
const words = process.argv.slice(2);

async function main(): Promise<void> {
  const { runCommandLine } = await import("./cli/cli.ts");
  const { isWritten, put } = await import("./cli/put.ts");
  const { makeWorld } = await import("./main/world.ts");
  let world: Awaited<ReturnType<typeof makeWorld>>;
  try {
    world = await makeWorld(build);
  } catch (error) {
    const { AppError } = await import("./core/errors.ts");
    if (!(error instanceof AppError)) throw error;
    // Not even the places are known, so there is no world to report it with.
    const { message, hint, path, code } = error;
    const end = words.indexOf("--");
    const asksJson = (end === -1 ? words : words.slice(0, end)).includes("--json");
    await put(
      "stderr",
      asksJson
        ? `${JSON.stringify({ error: { code, message, ...(hint === undefined ? {} : { hint }), ...(path === undefined ? {} : { path }) } })}\n`
        : `drover: ${message}${path === undefined ? "" : ` [${path}]`}${hint === undefined ? "" : `. ${hint}`}\n`,
    );
    process.exitCode = 2;
    return;
  }
  process.exitCode = await runCommandLine(words, world);
  // Handles that only wait (a worker that has ended, a socket to nowhere) must not keep a finished command.
  if (isWritten()) process.exit();
}

/** A look at every page of a store's file, in a process of its own that can be ended, and that a damaged file may end. */
async function checkPages(file: string): Promise<void> {
  const { faultsOf } = await import("./store/integrity.ts");
  process.stdout.write(`${JSON.stringify(faultsOf(file))}\n`);
  process.exitCode = 0;
}

// Last, so that everything above is there when it begins.
if (words.length === 1 && (words[0] === "--version" || words[0] === "-V"))
  process.stdout.write(`drover ${build.version}\n`);
else {
  // Whoever ends without having said how, because nothing is left to wait for, has not succeeded.
  process.exitCode = 70;
  void (words.length === 2 && words[0] === "__pages" ? checkPages(words[1] ?? "") : main());
}
