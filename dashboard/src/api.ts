import { Client, path } from "./client";
import { learn } from "./clock";
import { route } from "./route";
import type {
  ArchivedJob,
  ArchiveSummary,
  AuditPage,
  ChainGraph,
  ChainPage,
  ChainSearch,
  DatabaseLines,
  DeadLetterSearch,
  DeadLetters,
  Done,
  ExportPage,
  ExportSearch,
  JobAction,
  JobActionResult,
  JobPage,
  JobSearch,
  JobStory,
  Kinds,
  LimitControl,
  Limits,
  Me,
  OrderKeyAction,
  Overview,
  ParkedPage,
  QueueAction,
  QueueControl,
  Queues,
  RetentionChange,
  RunnerAction,
  Runners,
  RunPage,
  SubscriptionAction,
  Subscriptions,
  Workers,
} from "./types";

type Signal = AbortSignal | undefined;
type Listener = () => void;

const listeners = new Set<Listener>();

const client = new Client({
  base: document.baseURI,
  fetch: (input, init) => fetch(input, init),
  onUnauthorized: () => {
    for (const listener of listeners) listener();
  },
  onDate: learn,
});

export function onUnauthorized(listener: Listener): void {
  listeners.add(listener);
}

/** The path of a route that is about one database: with several, it begins with the name. */
function of(path: string): string {
  const { database } = route.value;
  return database === null ? path : `databases/${encodeURIComponent(database)}/${path}`;
}

/** Every route of the operations API that the dashboard asks. */
export const api = {
  me: (signal?: Signal) => client.get<Me>("api/me", {}, signal),
  login: (token: string) => client.post<Me>("api/session", { token }),
  logout: () => client.delete<unknown>("api/session"),
  databases: (signal?: Signal) => client.get<DatabaseLines>("api/databases", {}, signal),

  overview: (signal?: Signal) => client.get<Overview>(of("api/overview"), { minutes: 60 }, signal),
  live: () => client.address(of("api/overview/live")),

  jobs: (search: JobSearch, signal?: Signal) => client.get<JobPage>(of("api/jobs"), { ...search }, signal),
  job: (id: string, signal?: Signal) => client.get<JobStory>(of(path("jobs", id)), {}, signal),
  actOnJobs: (action: JobAction, signal?: Signal) =>
    client.post<JobActionResult>(of("api/jobs/actions"), action, signal),

  actOnOrderKey: (action: OrderKeyAction) => client.post<Done>(of("api/order-keys/actions"), action),

  chains: (search: ChainSearch, signal?: Signal) =>
    client.get<ChainPage>(of("api/chains"), { ...search }, signal),
  chain: (id: string, signal?: Signal) => client.get<ChainGraph>(of(path("chains", id)), {}, signal),

  deadLetters: (search: DeadLetterSearch, signal?: Signal) =>
    client.get<DeadLetters>(of("api/dead-letters"), { ...search }, signal),

  runners: (signal?: Signal) => client.get<Runners>(of("api/runners"), {}, signal),
  runs: (name: string, limit: number, signal?: Signal) =>
    client.get<RunPage>(of(path("runners", name, "runs")), { limit }, signal),
  actOnRunner: (name: string, action: RunnerAction) =>
    client.post<Done>(of(path("runners", name, "actions")), action),

  workers: (signal?: Signal) => client.get<Workers>(of("api/workers"), {}, signal),
  kinds: (signal?: Signal) => client.get<Kinds>(of("api/kinds"), {}, signal),

  queues: (signal?: Signal) => client.get<Queues>(of("api/queues"), {}, signal),
  setQueue: (name: string, control: QueueControl) => client.put<Done>(of(path("queues", name)), control),
  actOnQueue: (name: string, action: QueueAction, signal?: Signal) =>
    client.post<Done | JobActionResult>(of(path("queues", name, "actions")), action, signal),

  limits: (signal?: Signal) => client.get<Limits>(of("api/limits"), {}, signal),
  setLimit: (name: string, control: LimitControl) => client.put<Done>(of(path("limits", name)), control),
  resetLimit: (name: string) => client.delete<Done>(of(path("limits", name))),

  subscriptions: (signal?: Signal) => client.get<Subscriptions>(of("api/subscriptions"), {}, signal),
  parked: (name: string, before: string | null, signal?: Signal) =>
    client.get<ParkedPage>(of(path("subscriptions", name, "parked")), { before, limit: 50 }, signal),
  actOnSubscription: (name: string, action: SubscriptionAction) =>
    client.post<Done>(of(path("subscriptions", name, "actions")), action),

  archive: (signal?: Signal) => client.get<ArchiveSummary>(of("api/archive"), {}, signal),
  exports: (search: ExportSearch, signal?: Signal) =>
    client.get<ExportPage>(of("api/archive/exports"), { ...search }, signal),
  archivedJob: (id: string, signal?: Signal) =>
    client.get<ArchivedJob>(of(path("archive", "jobs", id)), {}, signal),
  setRetention: (change: RetentionChange) => client.put<Done>(of("api/archive/retention"), change),

  audit: (before: string | null, signal?: Signal) =>
    client.get<AuditPage>(of("api/audit"), { before, limit: 50 }, signal),
};
