import { useRef } from "preact/hooks";
import type { JobLine } from "../openapi";
import { to } from "../route";
import { duration } from "../time";
import { StatusBadge } from "./badge";
import { type Column, Table } from "./table";
import { Time } from "./time";

const COLUMNS: Column<JobLine>[] = [
  {
    name: "Job",
    head: true,
    cell: (job) => (
      <a class="number" href={to(["jobs", job.id])}>
        #{job.id}
      </a>
    ),
  },
  { name: "Status", cell: (job) => <StatusBadge status={job.status} /> },
  { name: "Kind", wide: true, cell: (job) => <code>{job.kind}</code> },
  { name: "Queue", cell: (job) => job.queue },
  {
    name: "Attempt",
    end: true,
    cell: (job) => (
      <>
        {job.attempt}
        {job.max_attempts !== null && <span class="muted">/{job.max_attempts}</span>}
      </>
    ),
  },
  { name: "Created", spare: true, cell: (job) => <Time at={job.created_at} /> },
  {
    name: "Due, started or ended",
    cell: (job) => (
      <>
        <Time at={job.finished_at ?? job.running_since ?? job.available_at} />
        <span class="below">{times(job)}</span>
      </>
    ),
  },
  {
    name: "Error",
    cell: (job) =>
      job.error_code ? <code class="text-bad">{job.error_code}</code> : <span class="muted">–</span>,
  },
];

/** How long a job has waited and run, in all attempts. */
function times({ status, waited_ms, ran_ms }: JobLine): string | null {
  const waited = waited_ms === null ? null : `waited ${duration(waited_ms / 1000)}`;
  const ran =
    ran_ms === null ? (status === "processing" ? "running" : null) : `ran ${duration(ran_ms / 1000)}`;
  return [waited, ran].filter(Boolean).join(", ") || null;
}

interface Props {
  jobs: JobLine[];
  chosen: ReadonlySet<string>;
  onChoose: (chosen: ReadonlySet<string>) => void;
}

/** Jobs that can be chosen, with Shift a range of them. */
export function JobTable({ jobs, chosen, onChoose }: Props) {
  const last = useRef<string | null>(null);
  const toggle = (id: string, on: boolean, range: boolean) => {
    const next = new Set(chosen);
    for (const one of range && last.current ? between(jobs, last.current, id) : [id]) {
      if (on) next.add(one);
      else next.delete(one);
    }
    last.current = id;
    onChoose(next);
  };
  const all = (on: boolean) => onChoose(new Set(on ? jobs.map((job) => job.id) : []));
  return (
    <Table
      caption="Jobs"
      columns={COLUMNS}
      rows={jobs}
      id={(job) => job.id}
      named={(job) => `job ${job.id}`}
      selection={{ chosen, toggle, all }}
    />
  );
}

function between(jobs: JobLine[], one: string, other: string): string[] {
  const places = [one, other].map((id) => jobs.findIndex((job) => job.id === id));
  return jobs.slice(Math.min(...places), Math.max(...places) + 1).map((job) => job.id);
}
