// Written by `python -m tools.dashboard` from the OpenAPI document: change holdfast._ops.routes, requests or responses.

import type { Client } from "./client";

type Signal = AbortSignal | undefined;
const part = encodeURIComponent;

export type Status = "blocked" | "pending" | "processing" | "completed" | "failed" | "cancelled";
export type Severity = "critical" | "warning";

export interface ArchiveFile {
  source: string;
  starts_on: string;
  object: string;
}

export interface ArchiveSource {
  source: string;
  periods: number;
  rows: number;
  bytes: number;
  first_day: string;
  ends_on: string;
  unfinished: number;
  verified: number;
  dropped: number;
  next_drop: string | null;
}

export interface ArchiveSummary {
  configured: boolean;
  bucket: string | null;
  archived: boolean;
  sources: ArchiveSource[];
  retention: RetentionLine[];
  next_drop: string | null;
}

export interface ArchivedJob {
  job: JobStory;
  files: ArchiveFile[];
  complete: boolean;
}

export interface AttemptLine {
  attempt: number;
  outcome: "completed" | "retry" | "reschedule" | "failed" | "cancelled" | "released" | "lost";
  ended_at: string;
  worker: string | null;
  worker_name: string | null;
  error_code: string | null;
  error: string | null;
  started_at: string | null;
  seconds: number | null;
  traceback: string | null;
  due_at: string | null;
  waited: number | null;
  app_version: string | null;
  log: string | null;
}

export interface AuditLine {
  id: string;
  at: string;
  who: string;
  credential: string | null;
  address: string | null;
  role: Role;
  action: string;
  target: string | null;
  jobs: number | null;
  ids: string[] | null;
  detail: Record<string, unknown>;
}

export interface AuditPage {
  next: string | null;
  items: AuditLine[];
}

export interface BulkAction {
  id: string;
  created_at: string;
  ended_at: string | null;
  state: "running" | "stopped" | "completed";
  action: "retry" | "cancel" | "delete" | "reschedule";
  statuses: Status[];
  kind: string | null;
  queue: string | null;
  error_code: string | null;
  order_key: string | null;
  tag: string | null;
  unique_key: string | null;
  created_from: string | null;
  created_until: string | null;
  at: string | null;
  rate: number | null;
  limit: number | null;
  expected: number | null;
  done: number;
  refused: number;
  progress: number;
  who: string;
  stopped_by: string | null;
  refusals: RefusedJob[];
}

export interface BulkActionControl {
  action: "stop" | "resume";
}

export interface BulkActions {
  next: string | null;
  items: BulkAction[];
}

export interface ChainEdge {
  source: string;
  target: string;
  kind: "next" | "replay" | "blocks";
}

export interface ChainGraph {
  id: string;
  status: Status;
  result: unknown;
  nodes: ChainNode[];
  edges: ChainEdge[];
  complete: boolean;
}

export interface ChainItem {
  id: string;
  kind: string;
  last_id: string;
  last_kind: string;
  status: Status;
  created_at: string;
  finished_at: string | null;
}

export interface ChainNode {
  id: string;
  chain_id: string;
  kind: string;
  queue: string;
  status: Status;
  attempt: number;
  created_at: string;
  finished_at: string | null;
  error_code: string | null;
  progress: number | null;
}

export interface ChainPage {
  next: string | null;
  items: ChainItem[];
  looked: Looked;
}

export interface DatabaseFigures {
  at: string;
  due: number;
  oldest_due_seconds: number;
  unfinished: number;
  completed_minute: number;
  failed_hour: number;
  workers: number;
  problems: number;
}

export interface DatabaseLine {
  name: string;
  state: "serving" | "draining" | "not answering";
  draining: boolean;
  why: string | null;
  figures: DatabaseFigures | null;
}

export interface DatabaseLines {
  next: string | null;
  items: DatabaseLine[];
}

export interface DeadLetterAction {
  action: "dismiss" | "restore";
  kind: string;
  queue: string;
  error_code: string;
  last_at?: string | null;
}

export interface DeadLetterGroup {
  kind: string;
  queue: string;
  error_code: string;
  error: string | null;
  jobs: number;
  first_at: string;
  last_at: string;
  newest: string;
  dismissed_by: string | null;
  dismissed_at: string | null;
  versions: VersionFailures[];
}

export interface DeadLetters {
  next: string | null;
  items: DeadLetterGroup[];
  looked: Looked;
}

export interface Depth {
  pending: number;
  due: number;
  processing: number;
  blocked: number;
  stuck: number;
  oldest_due_seconds: number;
}

export interface Done {
  done: true;
  message: string;
}

export interface ExportLine {
  source: string;
  starts_on: string;
  ends_on: string;
  part: number;
  state: "exporting" | "uploaded" | "verified" | "dropped";
  running: boolean;
  progress: number | null;
  rows_done: number;
  rows: number | null;
  bytes: number | null;
  started_at: string;
  uploaded_at: string | null;
  verified_at: string | null;
  drop_eligible_at: string | null;
  dropped_at: string | null;
  object: string | null;
  checksum: string | null;
  error: string | null;
}

export interface ExportPage {
  next: string | null;
  items: ExportLine[];
  complete: boolean;
}

export interface JobAction {
  action: "retry" | "cancel" | "delete" | "reschedule";
  ids?: string[] | null;
  filter?: JobFilter | null;
  at?: string | null;
  again?: boolean;
  preview?: boolean;
  limit?: number | null;
  rate?: string | null;
}

export interface JobActionResult {
  preview: boolean;
  matched: number;
  capped: boolean;
  done: number;
  bulk: BulkAction | null;
  refused: RefusedJob[];
  sample: JobLine[];
  looked: Looked;
  at: string;
}

export interface JobBlocker {
  chain_id: string;
  status: Status | null;
}

export interface JobFilter {
  status?: Status | null;
  kind?: string | null;
  queue?: string | null;
  order_key?: string | null;
  tag?: string | null;
  unique_key?: string | null;
  error_code?: string | null;
  created_from?: string | null;
  created_until?: string | null;
  text?: string | null;
}

export interface JobGroup {
  done: number;
  failed: number;
  waiting: number;
}

export interface JobLine {
  id: string;
  status: Status;
  kind: string;
  queue: string;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: string;
  available_at: string;
  finished_at: string | null;
  worker: string | null;
  order_key: string | null;
  unique_key: string | null;
  error_code: string | null;
  first_due_at: string;
  running_since: string | null;
  waited_ms: number | null;
  ran_ms: number | null;
  tags: string[];
}

export interface JobPage {
  next: string | null;
  items: JobLine[];
  looked: Looked;
}

export interface JobStory {
  id: string;
  status: Status;
  kind: string;
  queue: string;
  priority: number;
  attempt: number;
  max_attempts: number | null;
  created_at: string;
  available_at: string;
  finished_at: string | null;
  worker: string | null;
  order_key: string | null;
  unique_key: string | null;
  error_code: string | null;
  first_due_at: string;
  running_since: string | null;
  waited_ms: number | null;
  ran_ms: number | null;
  tags: string[];
  max_runtime_ms: number | null;
  max_runtime_default: boolean | null;
  expires_at: string | null;
  locked_until: string | null;
  cancel_requested_at: string | null;
  worker_name: string | null;
  app_version: string | null;
  chain_id: string;
  next_id: string | null;
  payload: unknown;
  payload_bytes: number;
  headers: unknown;
  result: unknown;
  redacted: boolean;
  redacted_parts: ("payload" | "headers" | "result")[];
  trace: string | null;
  progress: number | null;
  progress_note: string | null;
  error: string | null;
  waits: JobWait[];
  key_stop: number | null;
  attempts: AttemptLine[];
  steps: StepLine[];
  replay_of: string | null;
  replays: string[];
  blockers: JobBlocker[];
  group: JobGroup | null;
}

export interface JobWait {
  code: "paused" | "order_stopped" | "order_key" | "isolated" | "step" | "not_due" | "blockers" | "limit" | "unserved" | "payload_unread" | "silent_worker" | "turn";
  text: string;
  command: string | null;
  jobs: string[];
  chains: string[];
}

export interface KindLine {
  kind: string;
  queue: string;
  depth: Depth;
  workers: number;
  completed: number;
  failed: number;
  waiting: Percentiles;
  running: Percentiles;
}

export interface Kinds {
  next: string | null;
  items: KindLine[];
  counted_at: string | null;
}

export interface LimitControl {
  concurrency: number | null;
  rate: string | null;
  burst?: number;
}

export interface LimitLine {
  etag: string;
  name: string;
  parameters: string[] | null;
  concurrency: number | null;
  rate: string | null;
  burst: number;
  declared: boolean;
  set_by: string | null;
  set_at: string | null;
  running: number;
  waiting: number;
  oldest_seconds: number | null;
}

export interface Limits {
  next: string | null;
  items: LimitLine[];
}

export interface Live {
  live: boolean;
  text: string;
}

export interface Login {
  token: string;
}

export interface Looked {
  jobs: number;
  back_to: string | null;
  complete: boolean;
}

export interface Me {
  name: string;
  role: Role;
  version: string;
  databases: string[];
}

export interface Minute {
  minute: string;
  completed: number;
  failed: number;
  retried: number;
  cancelled: number;
  waiting: Percentiles;
  running: Percentiles;
}

export interface OrderKeyAction {
  action: "resume";
  key: string;
}

export interface Overview {
  at: string;
  counted_at: string | null;
  ok: boolean;
  verdict: string;
  problems: Problem[];
  depth: Depth;
  completed: number;
  failed: number;
  retried: number;
  waiting: Percentiles;
  running: Percentiles;
  minutes: Minute[];
  queues: QueueOverview[];
  workers: number;
  unserved: UnservedKind[];
  relay_lag_events: number;
  relay_lag_seconds: number;
}

export interface ParkedLine {
  event_id: string;
  topic: string | null;
  key: string | null;
  holds_key: boolean;
  parked_at: string;
  released_at: string | null;
  error_code: string | null;
  error: string | null;
}

export interface ParkedPage {
  next: string | null;
  items: ParkedLine[];
}

export interface PartitionLine {
  partition: number;
  worker: string | null;
  lag_events: number;
  lag_seconds: number;
  at: string;
}

export interface Percentiles {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface Problem {
  code: "locked" | "no_worker" | "worker_silent" | "paused" | "unserved_kind" | "order_stopped" | "payload_unread" | "sink_down" | "kind_failing" | "retry_storm" | "slow_kind" | "catching_up" | "backlog" | "relay_elsewhere" | "relay_behind" | "relay_parked" | "no_reaper" | "stuck" | "runner_failing" | "census_old";
  severity: Severity;
  title: string;
  text: string;
  advice: string;
  about: string | null;
  since: string;
  count: number | null;
  page: string;
  command: string | null;
}

export interface QueueAction {
  action: "pause" | "resume" | "cancel_waiting";
  reason?: string | null;
  preview?: boolean | null;
  limit?: number | null;
}

export interface QueueControl {
  concurrency: number | null;
  lease_ms: number | null;
  rate: number | null;
}

export interface QueueLine {
  etag: string;
  name: string;
  paused: boolean;
  concurrency: number | null;
  lease_ms: number | null;
  rate: number | null;
  depth: Depth;
  workers: number;
}

export interface QueueOverview {
  name: string;
  paused: boolean;
  depth: Depth;
  completed: number;
  failed: number;
  waiting: Percentiles;
  running: Percentiles;
  minutes: Minute[];
}

export interface Queues {
  next: string | null;
  items: QueueLine[];
  counted_at: string | null;
}

export interface Ready {
  ready: boolean;
  problems: Trouble[];
}

export interface Refusal {
  type: string;
  title: string;
  status: number;
  detail: string;
  field: string | null;
  request_id: string | null;
}

export interface RefusedJob {
  id: string;
  why: string;
}

export interface RetentionChange {
  family: "job_history" | "job_failed" | "event" | "run";
  days: number;
}

export interface RetentionLine {
  etag: string;
  family: string;
  days: number;
  archived: boolean;
  changeable: boolean;
}

export type Role = "viewer" | "operator" | "developer";

export interface RunLine {
  id: string;
  runner: string;
  started_at: string;
  finished_at: string | null;
  worker: string | null;
  outcome: string | null;
  counts: Record<string, number>;
  error_code: string | null;
  error: string | null;
}

export interface RunOnce {
  summary: RunOnceSummary;
}

export interface RunOnceSummary {
  processed: number;
  completed: number;
  retried: number;
  failed: number;
  recovered: number;
  lost: number;
  duration_ms: number;
}

export interface RunPage {
  next: string | null;
  items: RunLine[];
}

export interface RunnerAction {
  action: "run" | "pause" | "resume" | "edit" | "remove";
  reason?: string | null;
  schedule?: string | null;
}

export interface RunnerLine {
  etag: string;
  name: string;
  what: "runner" | "job" | "loop";
  schedule: string | null;
  added: boolean;
  kind: string | null;
  payload: unknown;
  paused: boolean;
  triggered: boolean;
  next_at: string[];
  last: RunLine | null;
  last_at: string | null;
  running_since: string | null;
  running_on: string | null;
}

export interface Runners {
  next: string | null;
  items: RunnerLine[];
}

export interface Stats {
  generated_at: string;
  queue: StatsQueue;
  runtime: StatsRuntime;
  config: StatsConfig;
}

export interface StatsConfig {
  poll_ms: number | null;
  batch_size: number | null;
  max_attempts: number | null;
  processing_timeout_ms: number | null;
  retry_base_ms: number | null;
  retry_max_ms: number | null;
}

export interface StatsQueue {
  total: number;
  due_now: number;
  oldest_pending_age_seconds: number;
  stuck_processing: number;
  pending: number;
  processing: number;
  sent: number;
  failed: number;
}

export interface StatsRuntime {
  is_running: boolean;
  ticks_total: number;
  processed_total: number;
  retried_total: number;
  dead_letter_total: number;
  recovered_stuck_total: number;
  last_error: string | null;
}

export interface StepLine {
  at: string;
  name: string;
  key: string | null;
  state: "done" | "failed" | "sleep" | "waits" | "received" | "gathers" | "gathered" | "sent";
  due: string | null;
}

export interface SubscriptionAction {
  action: "pause" | "resume" | "replay" | "skip" | "release";
  since?: string | null;
  after?: string | null;
  key?: string | null;
  reason?: string | null;
}

export interface SubscriptionLine {
  name: string;
  target: string;
  paused: boolean;
  elsewhere: boolean;
  lag_events: number;
  lag_seconds: number;
  parked: number;
  partitions: PartitionLine[];
}

export interface Subscriptions {
  next: string | null;
  items: SubscriptionLine[];
}

export interface TrendLine {
  name: string;
  id: string | null;
  completed: number[];
  failed: number[];
  retried: number[];
  waiting: TrendTimes;
  running: TrendTimes;
  due: (number | null)[];
  processing: (number | null)[];
  oldest_due_seconds: (number | null)[];
}

export interface TrendTimes {
  p50: (number | null)[];
  p95: (number | null)[];
  p99: (number | null)[];
}

export interface Trends {
  range: "1h" | "6h" | "24h" | "7d";
  by: "queue" | "kind" | "worker";
  step_seconds: number;
  at: string[];
  total: TrendLine;
  lines: TrendLine[];
  versions: VersionMark[];
}

export interface Trouble {
  code: "database_unreachable" | "schema_not_migrated" | "no_worker" | "no_reaper" | "no_maintenance" | "starting" | "stopping" | "loop_ended" | "loop_stalled" | "endings_unwritten";
  text: string;
  database: string | null;
  loop: string | null;
  deployment_blocker: boolean;
}

export interface UnservedKind {
  kind: string;
  queue: string;
  due: number;
  oldest_due_seconds: number;
}

export interface VersionFailures {
  version: string;
  jobs: number;
  first_at: string;
  last_at: string;
}

export interface VersionMark {
  version: string;
  first_seen_at: string;
}

export interface WorkerLine {
  id: string;
  name: string;
  host: string | null;
  pid: number | null;
  version: string | null;
  state: "live" | "silent" | "stopped";
  started_at: string;
  heartbeat_at: string;
  reaped_at: string | null;
  stopped_at: string | null;
  stop_reason: string | null;
  queues: string[];
  kinds: string[];
  counters: Record<string, number>;
  app_version: string | null;
}

export interface Workers {
  next: string | null;
  items: WorkerLine[];
  unserved: UnservedKind[];
}

export type GetOverviewQuery = {
  minutes?: number | null;
};

export type ListJobsQuery = {
  status?: Status | null;
  kind?: string | null;
  queue?: string | null;
  order_key?: string | null;
  tag?: string | null;
  unique_key?: string | null;
  error_code?: string | null;
  created_from?: string | null;
  created_until?: string | null;
  text?: string | null;
  before?: string | null;
  limit?: number | null;
};

export type ListBulkActionsQuery = {
  limit?: number | null;
};

export type ListChainsQuery = {
  kind?: string | null;
  status?: Status | null;
  before?: string | null;
  limit?: number | null;
};

export type ListDeadLettersQuery = {
  kind?: string | null;
  queue?: string | null;
  created_from?: string | null;
  created_until?: string | null;
  dismissed?: boolean | null;
};

export type ListRunsOfRunnerQuery = {
  limit?: number | null;
};

export type ListRunsQuery = {
  limit?: number | null;
};

export type GetTrendsQuery = {
  range?: "1h" | "6h" | "24h" | "7d" | null;
  by?: "queue" | "kind" | "worker" | null;
  queue?: string | null;
  kind?: string | null;
};

export type ListParkedEventsQuery = {
  before?: string | null;
  limit?: number | null;
};

export type ListExportsQuery = {
  source?: string | null;
  since?: string | null;
  until?: string | null;
  limit?: number | null;
};

export type ListAuditQuery = {
  before?: string | null;
  limit?: number | null;
};

/** Every route. `at` gives the path of one that is about a database. */
export const operations = (client: Client, at: (path: string) => string) => ({
  signIn: (body: Login, signal?: Signal) =>
    client.post<Me>("api/v1/session", body, signal),
  signOut: (signal?: Signal) =>
    client.delete<Done>("api/v1/session", signal),
  getMe: (signal?: Signal) =>
    client.get<Me>("api/v1/me", {}, signal),
  listDatabases: (signal?: Signal) =>
    client.get<DatabaseLines>("api/v1/databases", {}, signal),
  getOverview: (query: GetOverviewQuery = {}, signal?: Signal) =>
    client.get<Overview>(at("overview"), query, signal),
  watchOverview: () => client.address(at("overview/live")),
  listJobs: (query: ListJobsQuery = {}, signal?: Signal) =>
    client.get<JobPage>(at("jobs"), query, signal),
  actOnJobs: (body: JobAction, signal?: Signal) =>
    client.post<JobActionResult>(at("jobs/actions"), body, signal),
  listBulkActions: (query: ListBulkActionsQuery = {}, signal?: Signal) =>
    client.get<BulkActions>(at("bulk-actions"), query, signal),
  getBulkAction: (id: string, signal?: Signal) =>
    client.get<BulkAction>(at(`bulk-actions/${part(id)}`), {}, signal),
  actOnBulkAction: (id: string, body: BulkActionControl, signal?: Signal) =>
    client.post<BulkAction>(at(`bulk-actions/${part(id)}/actions`), body, signal),
  actOnOrderKey: (body: OrderKeyAction, signal?: Signal) =>
    client.post<Done>(at("order-keys/actions"), body, signal),
  getJob: (id: string, signal?: Signal) =>
    client.get<JobStory>(at(`jobs/${part(id)}`), {}, signal),
  listChains: (query: ListChainsQuery = {}, signal?: Signal) =>
    client.get<ChainPage>(at("chains"), query, signal),
  getChain: (id: string, signal?: Signal) =>
    client.get<ChainGraph>(at(`chains/${part(id)}`), {}, signal),
  listDeadLetters: (query: ListDeadLettersQuery = {}, signal?: Signal) =>
    client.get<DeadLetters>(at("dead-letters"), query, signal),
  actOnDeadLetters: (body: DeadLetterAction, signal?: Signal) =>
    client.post<Done>(at("dead-letters/actions"), body, signal),
  listRunners: (signal?: Signal) =>
    client.get<Runners>(at("runners"), {}, signal),
  listRunsOfRunner: (name: string, query: ListRunsOfRunnerQuery = {}, signal?: Signal) =>
    client.get<RunPage>(at(`runners/${part(name)}/runs`), query, signal),
  actOnRunner: (name: string, body: RunnerAction, signal?: Signal, ifMatch?: string) =>
    client.post<Done>(at(`runners/${part(name)}/actions`), body, signal, ifMatch),
  listRuns: (query: ListRunsQuery = {}, signal?: Signal) =>
    client.get<RunPage>(at("runs"), query, signal),
  listWorkers: (signal?: Signal) =>
    client.get<Workers>(at("workers"), {}, signal),
  listQueues: (signal?: Signal) =>
    client.get<Queues>(at("queues"), {}, signal),
  actOnQueue: (queue: string, body: QueueAction, signal?: Signal) =>
    client.post<Done | JobActionResult>(at(`queues/${part(queue)}/actions`), body, signal),
  setQueue: (queue: string, body: QueueControl, signal?: Signal, ifMatch?: string) =>
    client.put<Done>(at(`queues/${part(queue)}`), body, signal, ifMatch),
  listLimits: (signal?: Signal) =>
    client.get<Limits>(at("limits"), {}, signal),
  setLimit: (name: string, body: LimitControl, signal?: Signal, ifMatch?: string) =>
    client.put<Done>(at(`limits/${part(name)}`), body, signal, ifMatch),
  resetLimit: (name: string, signal?: Signal, ifMatch?: string) =>
    client.delete<Done>(at(`limits/${part(name)}`), signal, ifMatch),
  getTrends: (query: GetTrendsQuery = {}, signal?: Signal) =>
    client.get<Trends>(at("trends"), query, signal),
  listKinds: (signal?: Signal) =>
    client.get<Kinds>(at("kinds"), {}, signal),
  listSubscriptions: (signal?: Signal) =>
    client.get<Subscriptions>(at("subscriptions"), {}, signal),
  listParkedEvents: (name: string, query: ListParkedEventsQuery = {}, signal?: Signal) =>
    client.get<ParkedPage>(at(`subscriptions/${part(name)}/parked`), query, signal),
  actOnSubscription: (name: string, body: SubscriptionAction, signal?: Signal) =>
    client.post<Done>(at(`subscriptions/${part(name)}/actions`), body, signal),
  getArchive: (signal?: Signal) =>
    client.get<ArchiveSummary>(at("archive"), {}, signal),
  listExports: (query: ListExportsQuery = {}, signal?: Signal) =>
    client.get<ExportPage>(at("archive/exports"), query, signal),
  setRetention: (body: RetentionChange, signal?: Signal, ifMatch?: string) =>
    client.put<Done>(at("archive/retention"), body, signal, ifMatch),
  getArchivedJob: (id: string, signal?: Signal) =>
    client.get<ArchivedJob>(at(`archive/jobs/${part(id)}`), {}, signal),
  listAudit: (query: ListAuditQuery = {}, signal?: Signal) =>
    client.get<AuditPage>(at("audit"), query, signal),
});
