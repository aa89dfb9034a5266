import { Client, path } from "./client";
import { learn } from "./clock";
import type {
  ArchivedJob,
  ArchiveSummary,
  AuditPage,
  ChainGraph,
  ChainPage,
  ChainSearch,
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
  Me,
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

/** Every route of the operations API that the dashboard asks. */
export const api = {
  me: (signal?: Signal) => client.get<Me>("api/me", {}, signal),
  login: (token: string) => client.post<Me>("api/session", { token }),
  logout: () => client.delete<unknown>("api/session"),

  overview: (signal?: Signal) => client.get<Overview>("api/overview", { minutes: 60 }, signal),
  live: () => client.address("api/overview/live"),

  jobs: (search: JobSearch, signal?: Signal) => client.get<JobPage>("api/jobs", { ...search }, signal),
  job: (id: string, signal?: Signal) => client.get<JobStory>(path("jobs", id), {}, signal),
  actOnJobs: (action: JobAction, signal?: Signal) =>
    client.post<JobActionResult>("api/jobs/actions", action, signal),

  chains: (search: ChainSearch, signal?: Signal) =>
    client.get<ChainPage>("api/chains", { ...search }, signal),
  chain: (id: string, signal?: Signal) => client.get<ChainGraph>(path("chains", id), {}, signal),

  deadLetters: (search: DeadLetterSearch, signal?: Signal) =>
    client.get<DeadLetters>("api/dead-letters", { ...search }, signal),

  runners: (signal?: Signal) => client.get<Runners>("api/runners", {}, signal),
  runs: (name: string, limit: number, signal?: Signal) =>
    client.get<RunPage>(path("runners", name, "runs"), { limit }, signal),
  actOnRunner: (name: string, action: RunnerAction) =>
    client.post<Done>(path("runners", name, "actions"), action),

  workers: (signal?: Signal) => client.get<Workers>("api/workers", {}, signal),
  kinds: (signal?: Signal) => client.get<Kinds>("api/kinds", {}, signal),

  queues: (signal?: Signal) => client.get<Queues>("api/queues", {}, signal),
  setQueue: (name: string, control: QueueControl) => client.put<Done>(path("queues", name), control),
  actOnQueue: (name: string, action: QueueAction, signal?: Signal) =>
    client.post<Done | JobActionResult>(path("queues", name, "actions"), action, signal),

  subscriptions: (signal?: Signal) => client.get<Subscriptions>("api/subscriptions", {}, signal),
  parked: (name: string, before: string | null, signal?: Signal) =>
    client.get<ParkedPage>(path("subscriptions", name, "parked"), { before, limit: 50 }, signal),
  actOnSubscription: (name: string, action: SubscriptionAction) =>
    client.post<Done>(path("subscriptions", name, "actions"), action),

  archive: (signal?: Signal) => client.get<ArchiveSummary>("api/archive", {}, signal),
  exports: (search: ExportSearch, signal?: Signal) =>
    client.get<ExportPage>("api/archive/exports", { ...search }, signal),
  archivedJob: (id: string, signal?: Signal) =>
    client.get<ArchivedJob>(path("archive", "jobs", id), {}, signal),
  setRetention: (change: RetentionChange) => client.put<Done>("api/archive/retention", change),

  audit: (before: string | null, signal?: Signal) =>
    client.get<AuditPage>("api/audit", { before, limit: 50 }, signal),
};
