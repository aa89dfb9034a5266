import { compact } from "../number";
import type { KindLine } from "../openapi";
import { to } from "../route";
import { duration } from "../time";
import { Badge } from "./badge";
import { Notice } from "./state";
import { type Column, Table } from "./table";

const COLUMNS: Column<KindLine>[] = [
  {
    name: "Kind",
    head: true,
    wide: true,
    cell: ({ kind, queue }) => (
      <a href={to("jobs", { kind, queue })}>
        <code>{kind}</code>
      </a>
    ),
  },
  { name: "Queue", cell: ({ queue }) => queue },
  { name: "Due", end: true, cell: ({ depth }) => compact(depth.due) },
  { name: "Running", end: true, cell: ({ depth }) => compact(depth.processing) },
  { name: "Completed", end: true, cell: ({ completed }) => compact(completed) },
  {
    name: "Failed",
    end: true,
    cell: ({ failed }) => <span class={failed > 0 ? "text-bad" : "muted"}>{compact(failed)}</span>,
  },
  { name: "Waits p50", end: true, cell: ({ waiting }) => duration(waiting.p50) },
  { name: "p95", end: true, cell: ({ waiting }) => duration(waiting.p95) },
  { name: "Runs p50", end: true, cell: ({ running }) => duration(running.p50) },
  { name: "p95", end: true, cell: ({ running }) => duration(running.p95) },
  {
    name: "Workers",
    end: true,
    cell: ({ workers, depth }) =>
      workers === 0 && depth.due > 0 ? (
        <Badge tone="bad" icon="warning">
          none
        </Badge>
      ) : (
        workers
      ),
  },
];

export function KindTable({ kinds }: { kinds: KindLine[] }) {
  if (kinds.length === 0) {
    return (
      <Notice icon="jobs" title="No kind yet">
        <p>A kind is shown while it has live jobs or a live worker.</p>
      </Notice>
    );
  }
  return (
    <Table caption="Kinds" columns={COLUMNS} rows={kinds} id={({ kind, queue }) => `${kind} ${queue}`} />
  );
}
