import { api } from "../api";
import { compact, count, many } from "../number";
import type { UnservedKind, WorkerLine } from "../openapi";
import { Badge } from "../parts/badge";
import { Icon, type IconName } from "../parts/icon";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import type { Tone } from "../story";
import { duration } from "../time";

const EVERY_MS = 10_000;
const STATES: Record<WorkerLine["state"], [Tone, IconName]> = {
  live: ["ok", "completed"],
  silent: ["bad", "warning"],
  stopped: ["idle", "cancelled"],
};
const KINDS_SHOWN = 3;

const COLUMNS: Column<WorkerLine>[] = [
  {
    name: "Worker",
    head: true,
    cell: (worker) => (
      <>
        <b>{worker.name}</b>
        <span class="below">
          #{worker.id}
          {worker.host && ` on ${worker.host}`}
          {worker.pid !== null && `, pid ${worker.pid}`}
          {worker.app_version && (
            <>
              , version <b>{worker.app_version}</b>
            </>
          )}
          {worker.version && `, Holdfast ${worker.version}`}
        </span>
      </>
    ),
  },
  { name: "State", cell: (worker) => <State worker={worker} /> },
  { name: "Last heartbeat", cell: (worker) => <Time at={worker.heartbeat_at} /> },
  { name: "Started", cell: (worker) => <Time at={worker.started_at} /> },
  { name: "Last reaped", cell: (worker) => <Time at={worker.reaped_at} none="never" /> },
  { name: "Serves", wide: true, cell: (worker) => <Serves worker={worker} /> },
  { name: "Totals", cell: (worker) => <Counters counters={worker.counters} /> },
];

export function WorkersPage() {
  const workers = useResource("workers", api.listWorkers, EVERY_MS);
  return (
    <Page title="Workers" note="Live ones first." aside={<Refresh />}>
      <Loaded of={workers} skeleton={<Bones rows={5} />}>
        {({ items: lines, unserved }) => (
          <>
            {unserved.length > 0 && <Unserved kinds={unserved} />}
            {lines.length === 0 ? (
              <Notice icon="workers" title="No worker has ever run here" tone="warn">
                <p>
                  Start one: <code>holdfast worker</code>
                </p>
              </Notice>
            ) : (
              <Table
                caption="Workers"
                columns={COLUMNS}
                rows={lines}
                id={(worker) => worker.id}
                tone={(worker) => (worker.state === "stopped" ? "faded" : undefined)}
              />
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

function Unserved({ kinds }: { kinds: UnservedKind[] }) {
  return (
    <section class="unserved tone-bad" aria-label="Kinds without a worker">
      <h2>
        <Icon name="warning" size={20} /> {many(kinds.length, "kind has", "kinds have")} due jobs but no live
        worker
      </h2>
      <p>Start a worker that has their handlers, or look whether one failed to start.</p>
      <ul>
        {kinds.map(({ kind, queue, due, oldest_due_seconds }) => (
          <li key={`${kind} ${queue}`}>
            <a href={to("jobs", { status: "pending", kind, queue })}>
              <code>{kind}</code>
            </a>
            <span>
              {many(due, "job")} due in {queue}, the oldest for {duration(oldest_due_seconds)}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function State({ worker }: { worker: WorkerLine }) {
  const [tone, icon] = STATES[worker.state];
  return (
    <>
      <Badge tone={tone} icon={icon}>
        {worker.state}
      </Badge>
      {worker.stopped_at && (
        <span class="below">
          <Time at={worker.stopped_at} />
          {worker.stop_reason && `: ${worker.stop_reason}`}
        </span>
      )}
    </>
  );
}

function Serves({ worker: { queues, kinds } }: { worker: WorkerLine }) {
  return (
    <>
      {queues.length === 0 ? "every queue" : queues.join(", ")}
      <span class="below">
        {kinds.length <= KINDS_SHOWN ? (
          <code>{kinds.join(", ")}</code>
        ) : (
          <details>
            <summary>{many(kinds.length, "kind")}</summary>
            <code>{kinds.join(", ")}</code>
          </details>
        )}
      </span>
    </>
  );
}

function Counters({ counters }: { counters: Record<string, number> }) {
  const entries = Object.entries(counters).filter(([, value]) => value !== 0);
  if (entries.length === 0) return <span class="muted">nothing yet</span>;
  return (
    <ul class="counts">
      {entries.map(([name, value]) => (
        <li key={name} title={count(value)}>
          {name.replace(/^job_|_total$/g, "").replaceAll("_", " ")} <b>{compact(value)}</b>
        </li>
      ))}
    </ul>
  );
}
