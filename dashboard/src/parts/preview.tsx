import { count, many } from "../number";
import type { JobActionResult, JobLine, RefusedJob } from "../openapi";
import { to } from "../route";
import { StatusBadge } from "./badge";
import { type Column, Table } from "./table";
import { Time } from "./time";

const COLUMNS: Column<JobLine>[] = [
  { name: "Job", head: true, cell: (job) => <a href={to(["jobs", job.id])}>#{job.id}</a> },
  { name: "Status", cell: (job) => <StatusBadge status={job.status} /> },
  { name: "Kind", cell: (job) => <code>{job.kind}</code> },
  { name: "Queue", cell: (job) => job.queue },
  { name: "Created", cell: (job) => <Time at={job.created_at} /> },
];

/** What an action would do: to how many, to which for example, and to which not. */
export function Preview({ result, verb }: { result: JobActionResult; verb: string }) {
  return (
    <div class="preview">
      <p class="preview-count" role="status">
        {result.matched === 0 ? (
          `There is nothing to ${verb}.`
        ) : (
          <>
            <b>{count(result.matched)}</b> {result.matched === 1 ? "job" : "jobs"} to {verb}
            {result.capped && result.bulk === null && !result.looked.complete && ", and there may be more"}.
          </>
        )}{" "}
        <span class="muted">Searched {many(result.looked.jobs, "job")}.</span>
      </p>
      {result.refused.length > 0 && (
        <Refused jobs={result.refused} says={`${many(result.refused.length, "job")} will be left alone`} />
      )}
      {result.sample.length > 0 && (
        <>
          <h3>{result.sample.length < result.matched ? `The newest ${result.sample.length}` : "These"}</h3>
          <Table
            caption="Jobs that would be acted on"
            columns={COLUMNS}
            rows={result.sample}
            id={(job) => job.id}
          />
        </>
      )}
    </div>
  );
}

/** Which jobs an action was not done to, or will not be, and why. */
export function Refused({ jobs, says, open = false }: { jobs: RefusedJob[]; says: string; open?: boolean }) {
  return (
    <details open={open}>
      <summary>{says}</summary>
      <ul class="refused">
        {jobs.map(({ id, why }) => (
          <li key={id}>
            <a href={to(["jobs", id])}>#{id}</a> {why}
          </li>
        ))}
      </ul>
    </details>
  );
}
