// pg-boss: batches of 500, fetched again at once while they come full, woken by NOTIFY.
import { load, main, started } from "./adapter.mjs";

const { PgBoss } = await load("pg-boss");
const QUEUE = "noop";

async function boss(url, options = {}) {
  const made = new PgBoss({ connectionString: url, useListenNotify: true, ...options });
  made.on("error", (error) => process.stderr.write(`${error}\n`));
  made.on("warning", () => {});
  await made.start();
  return made;
}

await main({
  prepare: async (url) => {
    const made = await boss(url);
    await made.createQueue(QUEUE, { notify: true });
  },
  produce: async (url) => {
    const made = await boss(url, { supervise: false, schedule: false });
    return {
      one: (job) => made.send(QUEUE, job),
      many: (jobs) => made.insert(QUEUE, jobs.map((data) => ({ data }))),
    };
  },
  work: async (url) => {
    const made = await boss(url);
    const options = { batchSize: 500, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, localConcurrency: 2 };
    await made.work(QUEUE, options, async (jobs) => {
      for (const job of jobs) started(job.data.at);
    });
  },
});
