import { useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { compact, count } from "../number";
import type { LimitLine } from "../openapi";
import { ActButton } from "../parts/button";
import { EditLimit } from "../parts/limit-dialog";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { duration } from "../time";

const EVERY_MS = 10_000;
/** More are not counted. */
const MOST = 10_000;

export function LimitsPage() {
  const limits = useResource("limits", api.listLimits, EVERY_MS);
  const { busy, run } = useAction(limits.reload);
  const [edited, setEdited] = useState<LimitLine | null>(null);
  const actions: Column<LimitLine> = {
    name: "Actions",
    mute: true,
    end: true,
    cell: (limit) => (
      <div class="buttons end">
        <ActButton small icon="edit" label={`Edit ${limit.name}`} onClick={() => setEdited(limit)}>
          Edit…
        </ActButton>
        {limit.set_by !== null && limit.declared && (
          <ActButton
            small
            icon="retry"
            label={`Reset ${limit.name}`}
            busy={busy === limit.name}
            onClick={() => run(limit.name, () => api.resetLimit(limit.name))}
          >
            Reset
          </ActButton>
        )}
      </div>
    ),
  };
  return (
    <Page title="Limits" note="They hold in all workers together." aside={<Refresh />}>
      <Loaded of={limits} skeleton={<Bones rows={5} />}>
        {({ items: lines }) =>
          lines.length === 0 ? (
            <Notice icon="limits" title="No limit yet">
              <p>A limit is there once a worker runs whose code declares it.</p>
            </Notice>
          ) : (
            <Table caption="Limits" columns={[...COLUMNS, actions]} rows={lines} id={(limit) => limit.name} />
          )
        }
      </Loaded>
      {edited && <EditLimit limit={edited} onDone={limits.reload} onClose={() => setEdited(null)} />}
    </Page>
  );
}

const COLUMNS: Column<LimitLine>[] = [
  {
    name: "Limit",
    head: true,
    cell: (limit) => (
      <>
        {limit.name}
        {limit.parameters && <span class="below">for each {limit.parameters.join(", ")}</span>}
      </>
    ),
  },
  { name: "Allowed", cell: allowed },
  {
    name: "Set by",
    cell: ({ set_by, set_at }) =>
      set_by === null ? (
        <span class="muted">code</span>
      ) : (
        <>
          {set_by}
          <span class="below">
            <Time at={set_at} none="" />
          </span>
        </>
      ),
  },
  { name: "Running", end: true, cell: ({ running }) => counted(running) },
  { name: "Waiting", end: true, cell: ({ waiting }) => counted(waiting) },
  {
    name: "Oldest",
    end: true,
    cell: ({ oldest_seconds }) =>
      oldest_seconds !== null ? duration(oldest_seconds) : <span class="muted">–</span>,
  },
];

function allowed({ concurrency, rate, burst }: LimitLine) {
  const parts = [
    concurrency !== null && `${count(concurrency)} at once`,
    rate !== null && `${rate}${burst > 1 ? `, ${count(burst)} after a pause` : ""}`,
  ].filter(Boolean);
  return parts.join("; ") || "any number";
}

function counted(jobs: number): string {
  return jobs >= MOST ? `${compact(MOST)} or more` : compact(jobs);
}
