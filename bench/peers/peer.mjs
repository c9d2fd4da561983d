/**
 * One peer, one case, one process: `node peer.mjs CASE INPUT`, INPUT as JSON. Prints what it measured as one line of JSON.
 * Jobs and steps do nothing. A latency is from the call that enqueues to the first line of the handler, on a worker that is idle; `freed`
 * from one handler's first line to the next one's with one job at a time. A rate counts what was recorded as done.
 */

const [name, text = "{}"] = process.argv.slice(2);
/** @type {{ count: number, atOnce?: number, steps?: number, url?: string, socket?: string }} */
const input = JSON.parse(text);
const { count, url = "", socket = "" } = input;

const pause = (/** @type {number} */ ms) => new Promise((done) => setTimeout(done, ms));
/** @param {readonly number[]} values @param {number} q */
const quantile = (values, q) => [...values].sort((a, b) => a - b)[Math.round((values.length - 1) * q)];
/** @param {() => boolean | Promise<boolean>} done */
const until = async (done, everyMs = 2) => {
  const endsAt = performance.now() + 120_000;
  while (!(await done())) {
    if (performance.now() > endsAt) throw new Error("it did not come to its end");
    await pause(everyMs);
  }
};

/** @param {(i: number) => Promise<unknown>} enqueue @param {(onStart: (i: number) => void) => void} listen */
async function latency(enqueue, listen) {
  /** @type {number[]} */
  const calledAt = [];
  /** @type {number[]} */
  const taken = [];
  listen((i) => taken.push(performance.now() - (calledAt[i] ?? 0)));
  for (let i = 0; i < count; i++) {
    calledAt[i] = performance.now();
    await enqueue(i);
    await until(() => taken.length > i, 1);
    await pause(15 + ((i * 7919) % 31));
  }
  return { p50: quantile(taken, 0.5), p99: quantile(taken, 0.99) };
}

/** Gaps between starts, those of the second half: the first ones start while others are being added. @param {readonly number[]} starts */
function freedOf(starts) {
  const gaps = starts.slice(1).map((at, i) => at - (starts[i] ?? 0));
  const late = gaps.slice(Math.floor(gaps.length / 2));
  return { freedP50: quantile(late, 0.5), freedP99: quantile(late, 0.99) };
}

const cases = {
  async "graphile-latency"() {
    const { makeWorkerUtils, run, Logger } = await import("graphile-worker");
    const logger = new Logger(() => () => {});
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await utils.migrate();
    /** @type {(i: number) => void} */
    let onStart = () => {};
    /** @type {import("graphile-worker").TaskList} */
    const taskList = { noop: async (payload) => onStart(/** @type {{ i: number }} */ (payload).i) };
    const options = { connectionString: url, logger, noHandleSignals: true, crontab: "", taskList };
    let worker = await run({ ...options, concurrency: 10 });
    await pause(300);
    const found = await latency(
      (i) => utils.addJob("noop", { i }),
      (listen) => (onStart = listen),
    );
    await worker.stop();
    /** @type {number[]} */
    const starts = [];
    onStart = () => starts.push(performance.now());
    for (let i = 0; i < count; i++) await utils.addJob("noop", { i });
    worker = await run({ ...options, concurrency: 1 });
    await until(() => starts.length >= count);
    await worker.stop();
    await utils.release();
    return { ...found, ...freedOf(starts) };
  },

  async "graphile-rate"() {
    const { makeWorkerUtils, run, Logger } = await import("graphile-worker");
    const { default: pg } = await import("pg");
    const logger = new Logger(() => () => {});
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    await utils.migrate();
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(
      `select graphile_worker.add_job('noop', json_build_object('i', i)) from generate_series(1, ${count}) i`,
    );
    let done = 0;
    const startedAt = performance.now();
    const worker = await run({
      connectionString: url,
      logger,
      noHandleSignals: true,
      crontab: "",
      concurrency: 10,
      taskList: { noop: async () => void done++ },
    });
    await until(() => done >= count);
    const left = async () =>
      Number((await client.query("select count(*) as n from graphile_worker._private_jobs")).rows[0].n);
    await until(async () => (await left()) === 0, 10);
    const perSecond = (count / (performance.now() - startedAt)) * 1_000;
    await worker.stop();
    await utils.release();
    await client.end();
    return { perSecond };
  },

  async "bullmq-latency"() {
    const { Queue, Worker } = await import("bullmq");
    const connection = { path: socket, maxRetriesPerRequest: null };
    const queue = new Queue("bench", { connection });
    await queue.waitUntilReady();
    /** @type {(i: number) => void} */
    let onStart = () => {};
    const work = async (/** @type {{ data: { i: number } }} */ job) => onStart(job.data.i);
    let worker = new Worker("bench", work, { connection, concurrency: 16 });
    await worker.waitUntilReady();
    await pause(300);
    const found = await latency(
      (i) => queue.add("n", { i }),
      (listen) => (onStart = listen),
    );
    await worker.close();
    /** @type {number[]} */
    const starts = [];
    onStart = () => starts.push(performance.now());
    for (let i = 0; i < count; i++) await queue.add("n", { i });
    worker = new Worker("bench", work, { connection, concurrency: 1 });
    await until(() => starts.length >= count);
    await worker.close();
    await queue.close();
    return { ...found, ...freedOf(starts) };
  },

  /** Workflows of so many steps each, so many at once. */
  async "dbos-rate"() {
    const { DBOS } = await import("@dbos-inc/dbos-sdk");
    const { atOnce = 1, steps = 10 } = input;
    DBOS.setConfig({ name: "bench", systemDatabaseUrl: url, logLevel: "error", runAdminServer: false });
    const noop = async () => 1;
    const workflow = DBOS.registerWorkflow(
      async (/** @type {number} */ i) => {
        for (let step = 0; step < steps; step++) await DBOS.runStep(noop, { name: "s" });
        return i;
      },
      { name: "workflow" },
    );
    await DBOS.launch();
    for (let i = 0; i < 3; i++) await workflow(i);
    const startedAt = performance.now();
    let next = 0;
    await Promise.all(
      Array.from({ length: atOnce }, async () => {
        while (next < count) await workflow(next++);
      }),
    );
    const perSecond = ((count * steps) / (performance.now() - startedAt)) * 1_000;
    await DBOS.shutdown();
    return { perSecond };
  },
};

const one = cases[/** @type {keyof typeof cases} */ (name)];
if (one === undefined) throw new Error(`there is no case ${name}`);
const measured = await one();
process.stdout.write(`\n${JSON.stringify(measured)}\n`, () => process.exit(0));
