import { expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import type { Asked } from "./ask.ts";
import { launchd } from "./launchd.ts";

/** What Apple's manual and its own output say of `launchctl`: no Mac is here to ask. */
function stub(answers: Readonly<Record<string, Partial<Asked>>>) {
  const asked: string[] = [];
  const control = launchd({
    environment: {},
    limitMs: 1_000,
    home: "/Users/me",
    uid: 501,
    ask: async ([, ...args]) => {
      const words = args.join(" ");
      asked.push(words);
      return { exit: 0, out: "", err: "", fault: null, ...answers[words] };
    },
  });
  return { control, asked };
}

const PRINTED = `gui/501/drover = {
	active count = 1
	path = /Users/me/Library/LaunchAgents/drover.plist
	type = LaunchAgent
	state = running
	program = /opt/homebrew/bin/node
	runs = 3
	pid = 4711
	last exit code = 130
}
`;

test("what launchctl prints of an agent is read", async () => {
  const { control } = stub({
    "print gui/501/drover": { out: PRINTED },
    "print-disabled gui/501": {
      out: 'disabled services = {\n\t\t"com.example.other" => disabled\n\t\t"drover" => enabled\n\t}\n',
    },
  });
  expect(await control.look("drover")).toMatchObject({
    fault: null,
    loaded: true,
    file: "/Users/me/Library/LaunchAgents/drover.plist",
    enabled: true,
    state: "active",
    pid: 4711,
    restarts: 2,
    result: "exit 130",
    linger: null,
  });
});

test("one that is not there, one that waits, and a launchd that says nothing are told apart", async () => {
  const absent = stub({ "print gui/501/drover": { exit: 113, err: 'Could not find service "drover" in domain' } });
  expect(await absent.control.look("drover")).toMatchObject({
    fault: null,
    loaded: false,
    state: "inactive",
    enabled: false,
  });
  const waits = stub({ "print gui/501/drover": { out: "\tstate = spawn scheduled\n\tlast exit code = 5\n" } });
  expect(await waits.control.look("drover")).toMatchObject({ state: "waiting", result: "exit 5" });
  const mute = stub({ "print gui/501/drover": { exit: null, fault: "it has not answered" } });
  expect(await mute.control.look("drover")).toMatchObject({ fault: "it has not answered" });
});

test("it is loaded before it is started, over ssh in the user's own domain; a refusal is told in launchd's words", async () => {
  const { control, asked } = stub({ "print gui/501": { exit: 125 }, "print user/501/drover": { exit: 113 } });
  await control.enable("drover");
  await control.start("drover");
  await control.stop("drover");
  expect(asked.filter((words) => !words.startsWith("print "))).toEqual([
    "enable user/501/drover",
    "bootstrap user/501 /Users/me/Library/LaunchAgents/drover.plist",
    "kickstart user/501/drover",
  ]);
  const refusing = stub({ "enable gui/501/drover": { exit: 1, err: "Operation not permitted\n" } });
  const error = await refusing.control.enable("drover").catch((one: unknown) => one);
  expect(error).toBeInstanceOf(AppError);
  expect(error).toMatchObject({
    code: "service_failed",
    message: "launchctl enable gui/501/drover: Operation not permitted",
  });
});
