import { useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { compact, count } from "../number";
import type { QueueLine } from "../openapi";
import { Badge } from "../parts/badge";
import { ActButton } from "../parts/button";
import { KindTable } from "../parts/kind-table";
import { Page, Panel } from "../parts/page";
import { CancelWaiting, EditQueue } from "../parts/queue-dialogs";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import { duration } from "../time";

const EVERY_MS = 10_000;

export function QueuesPage() {
  const queues = useResource("queues", api.listQueues, EVERY_MS);
  const kinds = useResource("kinds", api.listKinds, EVERY_MS);
  const { busy, run } = useAction(queues.reload);
  const [edited, setEdited] = useState<QueueLine | null>(null);
  const [cancelled, setCancelled] = useState<string | null>(null);
  const pause = (queue: QueueLine) => {
    const action = queue.paused ? "resume" : "pause";
    run(queue.name, () => api.actOnQueue(queue.name, { action, preview: false }));
  };
  const actions: Column<QueueLine> = {
    name: "Actions",
    mute: true,
    end: true,
    cell: (queue) => (
      <div class="buttons end">
        <ActButton
          small
          icon={queue.paused ? "play" : "pause"}
          label={`${queue.paused ? "Resume" : "Pause"} ${queue.name}`}
          busy={busy === queue.name}
          onClick={() => pause(queue)}
        >
          {queue.paused ? "Resume" : "Pause"}
        </ActButton>
        <ActButton small icon="edit" label={`Edit ${queue.name}`} onClick={() => setEdited(queue)}>
          Edit…
        </ActButton>
        <ActButton
          small
          look="danger"
          icon="cancel"
          label={`Cancel waiting jobs of ${queue.name}`}
          onClick={() => setCancelled(queue.name)}
        >
          Cancel waiting jobs…
        </ActButton>
      </div>
    ),
  };
  const counted = queues.value?.counted_at ?? null;
  return (
    <Page
      title="Queues"
      note={
        queues.value && (
          <>
            Counted <Time at={counted} none="never yet" />.
          </>
        )
      }
      aside={<Refresh />}
    >
      <Loaded of={queues} skeleton={<Bones rows={5} />}>
        {({ items: lines }) =>
          lines.length === 0 ? (
            <Notice icon="queues" title="No queue yet">
              <p>A queue is there once a job is enqueued into it or a worker serves it.</p>
            </Notice>
          ) : (
            <Table caption="Queues" columns={[...COLUMNS, actions]} rows={lines} id={(queue) => queue.name} />
          )
        }
      </Loaded>
      <Panel title="Kinds" note="Jobs that ended within the last hour.">
        <Loaded of={kinds} skeleton={<Bones rows={5} />}>
          {({ items: lines }) => <KindTable kinds={lines} />}
        </Loaded>
      </Panel>
      {edited && <EditQueue queue={edited} onDone={queues.reload} onClose={() => setEdited(null)} />}
      {cancelled && (
        <CancelWaiting queue={cancelled} onDone={queues.reload} onClose={() => setCancelled(null)} />
      )}
    </Page>
  );
}

const COLUMNS: Column<QueueLine>[] = [
  {
    name: "Queue",
    head: true,
    cell: (queue) => (
      <>
        <a href={to("jobs", { queue: queue.name })}>{queue.name}</a>
        <Control queue={queue} />
      </>
    ),
  },
  {
    name: "State",
    cell: ({ paused, workers, depth }) => {
      if (paused)
        return (
          <Badge tone="warn" icon="pause">
            paused
          </Badge>
        );
      if (workers === 0 && depth.due > 0)
        return (
          <Badge tone="bad" icon="warning">
            no worker
          </Badge>
        );
      return (
        <Badge tone="ok" icon="play">
          open
        </Badge>
      );
    },
  },
  { name: "Due", end: true, cell: ({ depth }) => compact(depth.due) },
  { name: "Pending", end: true, cell: ({ depth }) => compact(depth.pending) },
  { name: "Blocked", end: true, cell: ({ depth }) => compact(depth.blocked) },
  {
    name: "Running",
    end: true,
    cell: ({ depth }) => (
      <>
        {compact(depth.processing)}
        {depth.stuck > 0 && <span class="below text-bad">{compact(depth.stuck)} stuck</span>}
      </>
    ),
  },
  {
    name: "Oldest",
    end: true,
    cell: ({ depth }) => (depth.due > 0 ? duration(depth.oldest_due_seconds) : <span class="muted">–</span>),
  },
  { name: "Workers", end: true, cell: ({ workers }) => count(workers) },
];

/** What was set for the queue; what was not is each worker's own. */
function Control({ queue: { concurrency, lease_ms, rate } }: { queue: QueueLine }) {
  const set = [
    concurrency !== null && `${count(concurrency)} at once`,
    lease_ms !== null && `lease ${duration(lease_ms / 1000)}`,
    rate !== null && `${count(rate)}/s`,
  ].filter(Boolean);
  return <span class="below">{set.join(", ") || "set by each worker"}</span>;
}
