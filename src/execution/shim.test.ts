import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { release, tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { canMakeCgroups, openCgroups } from "./cgroups.ts";
import { findTool } from "./resident.ts";
import { perlResident, quote, requestFrame, requestText } from "./shim.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-shim-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe.each(["dash", "bash"])("a request to a resident %s", (shell) => {
  const path = findTool(shell);

  test.skipIf(path === null)("cut at any byte, starts nothing or the whole", () => {
    // Stands in for `setsid -f sh SHIM ...`: writes down what it was started with.
    const recorder = join(folder, "recorder");
    writeFileSync(recorder, `#!/bin/sh\nprintf '%s|' "$A" "$B" "$@" >>${quote(join(folder, "started"))}\n`);
    chmodSync(recorder, 0o755);
    const text = requestText(quote(recorder), "/bin/sh", {
      environment: { A: "1 '2'", B: "x\ny" },
      argv: ["/shim", "/dir with space", "it's", "$(id)", "a;b", "}", "last"],
    });
    const bytes = Buffer.from(text);
    const whole = "1 '2'|x\ny|/bin/sh|/shim|/dir with space|it's|$(id)|a;b|}|last|";
    let wholes = 0;
    for (let cut = 0; cut <= bytes.length; cut++) {
      rmSync(join(folder, "started"), { force: true });
      spawnSync(path ?? "", ["-s"], {
        input: bytes.subarray(0, cut),
        stdio: ["pipe", "ignore", "ignore"],
        env: { PATH: "/usr/bin:/bin" },
      });
      if (!existsSync(join(folder, "started"))) continue;
      wholes++;
      expect(readFileSync(join(folder, "started"), "utf8"), `cut at ${cut}`).toBe(whole);
    }
    // With its last newline missing, a request is whole all the same.
    expect(wholes).toBe(2);
  });

  test.skipIf(path === null)("a request that cannot be understood does not stop the next one", () => {
    const mark = join(folder, "next");
    const bad = requestText("/no/such/launcher", "/bin/sh", { environment: {}, argv: ["x"] });
    const good = requestText("/bin/touch", mark, { environment: {}, argv: [] });
    spawnSync(path ?? "", ["-s"], {
      input: bad + good,
      stdio: ["pipe", "ignore", "ignore"],
      env: { PATH: "/usr/bin:/bin" },
    });
    expect(existsSync(mark)).toBe(true);
  });
});

describe("a request to perl", () => {
  const perl = findTool("perl");

  test.skipIf(perl === null)("cut at any byte, starts nothing or the whole", () => {
    // Stands in for the shell that becomes the shim. What perl started holds its output open, so that it is waited for.
    const recorder = join(folder, "recorder");
    writeFileSync(recorder, `#!/bin/sh\nprintf '%s|' "$A" "$B" "$@" >>${quote(join(folder, "started"))}\n`);
    chmodSync(recorder, 0o755);
    const frame = requestFrame(recorder, {
      environment: { A: "1 '2'", B: "x\ny" },
      argv: ["/shim", "/dir with space", "", "$(id)", "umask", "-", "-", "é", "last"],
    });
    // Word 6 of the shim says whether it is a subreaper.
    const whole = /^1 '2'\|x\ny\|\/shim\|\/dir with space\|\|\$\(id\)\|umask\|-\|(?:-|yes)\|é\|last\|$/;
    const script = perlResident(process.platform, process.arch);
    for (let cut = 0; cut <= frame.length; cut++) {
      rmSync(join(folder, "started"), { force: true });
      const { status } = spawnSync(perl ?? "", ["-e", script], {
        input: frame.subarray(0, cut),
        stdio: ["pipe", "pipe", "ignore"],
        env: { PATH: "/usr/bin:/bin" },
        timeout: 10_000,
      });
      expect(status, `cut at ${cut}`).toBe(0);
      const started = existsSync(join(folder, "started")) ? readFileSync(join(folder, "started"), "utf8") : null;
      if (cut < frame.length) expect(started, `cut at ${cut}`).toBeNull();
      else expect(started).toMatch(whole);
    }
  });

  /** CLONE_INTO_CGROUP came with Linux 5.7. */
  const bearsIn = process.platform === "linux" && Number.parseFloat(release().replace(/\.(\d)\b/, ".0$1")) >= 5.07;

  test.skipIf(perl === null || !canMakeCgroups() || !bearsIn)(
    "bears the shim in its cgroup, and where that is none leaves the move to the shim",
    () => {
      const cgroups = openCgroups(folder);
      const cgroup = cgroups?.make("att_born.1") ?? "";
      const recorder = join(folder, "recorder");
      const started = join(folder, "started");
      writeFileSync(
        recorder,
        `#!/bin/sh\nprintf '%s\\n' "$6" >>${quote(started)}\ncat /proc/self/cgroup >>${quote(started)}\n`,
      );
      chmodSync(recorder, 0o755);
      const born = (place: string): string => {
        rmSync(started, { force: true });
        const argv = ["/shim", "/folder", "/", "/dev/null", "0022", place, "-", "file", "true"];
        spawnSync(perl ?? "", ["-e", perlResident(process.platform, process.arch)], {
          input: requestFrame(recorder, { environment: { A: "1" }, argv }),
          stdio: ["pipe", "pipe", "ignore"],
          env: { PATH: "/usr/bin:/bin" },
          timeout: 10_000,
        });
        return readFileSync(started, "utf8");
      };
      try {
        const [word, ...groups] = born(cgroup).split("\n");
        expect(word).toBe(`in:${cgroup}`);
        expect(groups.find((line) => line.startsWith("0::"))).toMatch(/\/att_born\.1$/);
        expect(born(folder)).toMatch(new RegExp(`^${folder}\n`));
        expect(born(join(folder, "none"))).toMatch(new RegExp(`^${folder}/none\n`));
      } finally {
        cgroups?.remove(cgroup);
        cgroups?.close();
      }
    },
  );
});
