import { api } from "../api";
import type { RunLine } from "../openapi";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Counts, Outcome } from "../parts/run";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import { between, duration } from "../time";

const EVERY_MS = 15_000;
const MOST = 100;

const COLUMNS: Column<RunLine>[] = [
  { name: "Started", head: true, cell: (run) => <Time at={run.started_at} /> },
  { name: "Outcome", cell: (run) => <Outcome run={run} /> },
  {
    name: "Took",
    end: true,
    cell: (run) => (run.finished_at ? duration(between(run.started_at, run.finished_at)) : "–"),
  },
  { name: "Counts", wide: true, cell: (run) => <Counts run={run} /> },
  { name: "Worker", end: true, cell: (run) => (run.worker ? `#${run.worker}` : "–") },
];

export function RunsPage({ name }: { name: string }) {
  const runs = useResource(
    `runs ${name}`,
    (signal) => api.listRunsOfRunner(name, { limit: MOST }, signal),
    EVERY_MS,
  );
  return (
    <Page
      title={name}
      trail={<a href={to("runners")}>Runners</a>}
      note={`Its newest runs, at most ${MOST}. Of those that had nothing to do, the last of a day.`}
      aside={<Refresh />}
    >
      <Loaded of={runs} skeleton={<Bones rows={8} />}>
        {({ items: lines }) =>
          lines.length === 0 ? (
            <Notice icon="runners" title="No runs yet">
              <p>It has not run.</p>
            </Notice>
          ) : (
            <Table caption={`Runs of ${name}`} columns={COLUMNS} rows={lines} id={(run) => run.id} />
          )
        }
      </Loaded>
    </Page>
  );
}
