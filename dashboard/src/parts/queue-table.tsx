import { compact, count } from "../number";
import type { QueueOverview } from "../openapi";
import { to } from "../route";
import { duration } from "../time";
import { Badge } from "./badge";
import { Panel } from "./page";
import { Sparkline } from "./sparkline";
import { Bones, Notice } from "./state";
import { type Column, Table } from "./table";

const COLUMNS: Column<QueueOverview>[] = [
  {
    name: "Queue",
    head: true,
    cell: (queue) => (
      <>
        <a href={to("jobs", { queue: queue.name })}>{queue.name}</a>{" "}
        {queue.paused && (
          <Badge tone="warn" icon="pause">
            paused
          </Badge>
        )}
      </>
    ),
  },
  {
    name: "Last hour",
    cell: (queue) => (
      <Sparkline
        values={queue.minutes.map((minute) => minute.completed)}
        bad={queue.minutes.map((minute) => minute.failed)}
        label={`${queue.name}: ${count(queue.completed)} completed, ${count(queue.failed)} failed in the last hour`}
      />
    ),
  },
  { name: "Completed", end: true, cell: (queue) => compact(queue.completed) },
  {
    name: "Failed",
    end: true,
    cell: (queue) => <span class={queue.failed > 0 ? "text-bad" : "muted"}>{compact(queue.failed)}</span>,
  },
  { name: "Due", end: true, cell: (queue) => compact(queue.depth.due) },
  { name: "Running", end: true, spare: true, cell: (queue) => compact(queue.depth.processing) },
  {
    name: "Oldest waiting job",
    end: true,
    cell: (queue) =>
      queue.depth.due > 0 ? duration(queue.depth.oldest_due_seconds) : <span class="muted">–</span>,
  },
  { name: "Waits p95", end: true, spare: true, cell: (queue) => duration(queue.waiting.p95) },
  { name: "Runs p95", end: true, spare: true, cell: (queue) => duration(queue.running.p95) },
];

export function QueueTable({ queues }: { queues: QueueOverview[] | null }) {
  return (
    <Panel title="By queue">
      {queues === null ? (
        <Bones rows={4} />
      ) : queues.length === 0 ? (
        <Notice icon="queues" title="No queue yet">
          <p>A queue is there once a job is enqueued into it or a worker serves it.</p>
        </Notice>
      ) : (
        <Table caption="Queues" columns={COLUMNS} rows={queues} id={(queue) => queue.name} />
      )}
    </Panel>
  );
}
