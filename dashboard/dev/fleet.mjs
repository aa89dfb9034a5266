// More made-up answers: what runs, and what people did.
import { ago, depth, KINDS, overview } from "./work.mjs";

const run = (runner, seconds, extra = {}) => ({
  id: String(seconds),
  runner,
  started_at: ago(seconds),
  finished_at: ago(seconds - 1.2),
  worker: "41",
  outcome: "done",
  counts: { reaped: 3, failed: 0 },
  error_code: null,
  error: null,
  ...extra,
});
const runner = (name, what, schedule, extra = {}) => ({
  name,
  what,
  schedule,
  paused: false,
  triggered: false,
  next_at: schedule ? [ago(-40), ago(-100), ago(-160)] : [],
  last: what === "job" ? null : run(name, 20),
  last_at: schedule ? ago(20) : null,
  running_since: null,
  running_on: null,
  ...extra,
});

export const runners = (mood) => ({
  runners:
    mood === "empty"
      ? []
      : [
          runner("archive", "runner", "47 3 * * *", {
            next_at: [ago(-40_000), ago(-126_400), ago(-212_800)],
            last: run("archive", 46_000, {
              finished_at: ago(45_300),
              counts: { days: 1, rows: 1_204_112, bytes: 88_120_331 },
            }),
          }),
          runner("cleanup", "runner", "17 3 * * *", { paused: true, next_at: [] }),
          runner("dispatch", "runner", "every 1 min", { running_since: ago(4), running_on: "41" }),
          runner("jobs", "loop", null, {
            last: run("jobs", 5, { counts: { claimed: 1204, completed: 1198, retried: 6 } }),
          }),
          runner("receipts", "runner", "every 1 min", {
            last: run("receipts", 50, {
              outcome: "failed",
              error_code: "unreachable",
              error: "ConnectError: api.example.org did not answer",
            }),
          }),
          runner("report.monthly.build", "job", "0 6 1 * *", {
            next_at: [ago(-900_000), ago(-3_500_000), ago(-6_100_000)],
            triggered: true,
          }),
        ],
});
export const runs = (name) => ({
  runs: Array.from({ length: 30 }, (_, index) =>
    run(name, 50 + index * 60, {
      id: String(index),
      ...(index % 7 === 3 && {
        outcome: "failed",
        error_code: "unreachable",
        error: "ConnectError: api.example.org did not answer",
      }),
    }),
  ),
});

const worker = (id, name, state, extra = {}) => ({
  id,
  name,
  host: "app-1.example.org",
  pid: 4100 + Number(id),
  version: "0.1.0",
  state,
  started_at: ago(86_000),
  heartbeat_at: ago(3),
  reaped_at: ago(8),
  stopped_at: null,
  stop_reason: null,
  queues: ["default", "mail"],
  kinds: KINDS.slice(0, 4).map(([kind]) => kind),
  counters: {
    processed_total: 1_204_331,
    retried_total: 9120,
    dead_letter_total: 312,
    recovered_stuck_total: 3,
  },
  ...extra,
});

export const workers = (mood) => ({
  workers:
    mood === "empty"
      ? []
      : [
          worker("41", "mail-1", "live"),
          worker("42", "mail-2", "live", { host: "app-2.example.org" }),
          worker("43", "pdf-1", "silent", {
            queues: ["pdf"],
            kinds: ["invoice.pdf.render"],
            heartbeat_at: ago(190),
          }),
          worker("40", "mail-1", "stopped", {
            stopped_at: ago(86_100),
            stop_reason: "signal",
            heartbeat_at: ago(86_100),
          }),
        ],
  unserved: mood === "trouble" ? [{ kind: "report.monthly.build", queue: "reports", due: 37, oldest_due_seconds: 5400 }] : [],
});

export const queues = (mood) => ({
  queues: overview(mood).queues.map(({ name, paused, depth: of }, index) => ({
    name,
    paused,
    concurrency: index === 2 ? 2 : null,
    lease_ms: index === 2 ? 120_000 : null,
    rate: index === 1 ? 50 : null,
    depth: of,
    workers: index === 3 ? 0 : 2,
  })),
  counted_at: ago(2),
});
export const kinds = (mood) => ({
  kinds:
    mood === "empty"
      ? []
      : KINDS.map(([kind, queue], index) => ({
          kind,
          queue,
          depth: depth(index * 40, index, 3),
          workers: index === 4 ? 0 : 2,
          completed: 90_000 / (index + 1),
          failed: index === 1 ? 312 : 0,
          latency: { p50: 0.03, p95: 0.4, p99: 1.2 },
        })),
  counted_at: ago(2),
});

const partition = (number, lag) => ({
  partition: number,
  worker: number === 3 ? null : "41",
  lag_events: lag,
  lag_seconds: lag / 13,
  at: ago(lag ? 30 : 1),
});
export const subscriptions = (mood) => ({
  subscriptions:
    mood === "empty"
      ? []
      : [
          {
            name: "orders",
            target: "nats",
            paused: false,
            elsewhere: mood === "trouble",
            lag_events: 0,
            lag_seconds: 0,
            parked: 0,
            partitions: [partition(0, 0)],
          },
          {
            name: "invoices",
            target: "kafka",
            paused: false,
            elsewhere: false,
            lag_events: 1240,
            lag_seconds: 95,
            parked: 14,
            partitions: [0, 1, 2, 3].map((one) => partition(one, one * 200)),
          },
          {
            name: "welcome",
            target: "jobs",
            paused: true,
            elsewhere: false,
            lag_events: 12,
            lag_seconds: 640,
            parked: 0,
            partitions: [partition(0, 12)],
          },
        ],
});
export const parked = () => ({
  parked: Array.from({ length: 14 }, (_, index) => ({
    event_id: String(88_120 + index),
    topic: "invoice.paid",
    key: `customer:${index % 4}`,
    holds_key: index < 4,
    parked_at: ago(600 - index),
    released_at: index === 13 ? ago(10) : null,
    error_code: index < 4 ? "message_too_large" : null,
    error: index < 4 ? "MessageSizeTooLarge: 1.2 MB, at most 1 MB" : null,
  })),
  next: null,
});
export const audit = (mood) => ({
  entries:
    mood === "empty"
      ? []
      : Array.from({ length: 20 }, (_, index) => ({
          id: String(500 - index),
          at: ago(index * 1800 + 30),
          who: index % 3 ? "anna" : "deploy",
          role: index % 3 ? "operator" : "developer",
          action: ["jobs.retry", "queue.pause", "runner.run", "queue.set", "subscription.replay"][index % 5],
          target: index % 5 === 1 ? "mail" : index % 5 === 2 ? "archive" : null,
          jobs: index % 5 === 0 ? 120 : null,
          detail: index % 5 === 0 ? { kind: "receipt.send", error_code: "smtp_refused" } : index % 5 === 3 ? { concurrency: 4, lease_ms: null } : {},
        })),
  next: null,
});
