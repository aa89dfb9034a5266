// graphile-worker: a local queue of 500, 24 jobs at a time, completions gathered for a moment, as its page on performance says.
import { load, main, started } from "./adapter.mjs";

const { Logger, makeWorkerUtils, run, runMigrations } = await load("graphile-worker");
const logger = new Logger(() => () => {});

await main({
  prepare: (url) => runMigrations({ connectionString: url, logger }),
  produce: async (url) => {
    const utils = await makeWorkerUtils({ connectionString: url, logger });
    return {
      one: (job) => utils.addJob("noop", job),
      many: (jobs) => utils.addJobs(jobs.map((payload) => ({ identifier: "noop", payload }))),
    };
  },
  work: async (url) => {
    await run({
      connectionString: url,
      logger,
      noHandleSignals: true,
      taskList: { noop: async (payload) => started(payload.at) },
      preset: {
        worker: { concurrentJobs: 24, maxPoolSize: 10, localQueue: { size: 500 }, completeJobBatchDelay: 0 },
      },
    });
  },
});
