import { useState } from "preact/hooks";
import { useAction } from "../action";
import { api } from "../api";
import { now } from "../clock";
import type { RunnerAction, RunnerLine } from "../openapi";
import { Badge } from "../parts/badge";
import { ActButton } from "../parts/button";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Counts, Outcome } from "../parts/run";
import { EditSchedule, RemoveSchedule } from "../parts/schedule-dialogs";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";
import { between, brief, duration } from "../time";

const EVERY_MS = 10_000;
const WHAT = { runner: "runner", job: "schedule of a job", loop: "of each worker" };

export function RunnersPage() {
  const runners = useResource("runners", api.listRunners, EVERY_MS);
  const { busy, run } = useAction(runners.reload);
  const [edited, setEdited] = useState<RunnerLine | null>(null);
  const [removed, setRemoved] = useState<RunnerLine | null>(null);
  const act = (name: string, action: RunnerAction["action"]) =>
    run(`${action} ${name}`, () => api.actOnRunner(name, { action }));
  const columns: Column<RunnerLine>[] = [
    { name: "Runner", head: true, cell: (runner) => <Name runner={runner} /> },
    { name: "State", cell: (runner) => <State runner={runner} /> },
    { name: "Next", cell: (runner) => <Next runner={runner} /> },
    { name: "Last run", cell: (runner) => <Last runner={runner} /> },
    { name: "Counts", wide: true, cell: (runner) => <Counts run={runner.last} /> },
    {
      name: "Actions",
      mute: true,
      end: true,
      cell: (runner) => (
        <div class="buttons end">
          <ActButton
            small
            icon="play"
            label={`Run now: ${runner.name}`}
            busy={busy === `run ${runner.name}`}
            why={runner.what === "loop" ? "A loop runs all the time." : null}
            onClick={() => act(runner.name, "run")}
          >
            Run now
          </ActButton>
          {runner.paused ? (
            <ActButton
              small
              icon="play"
              label={`Resume ${runner.name}`}
              busy={busy === `resume ${runner.name}`}
              onClick={() => act(runner.name, "resume")}
            >
              Resume
            </ActButton>
          ) : (
            <ActButton
              small
              icon="pause"
              label={`Pause ${runner.name}`}
              busy={busy === `pause ${runner.name}`}
              why={
                runner.what === "loop" ? "A loop cannot be paused: pause the queue or stop the worker." : null
              }
              onClick={() => act(runner.name, "pause")}
            >
              Pause
            </ActButton>
          )}
          <ActButton
            small
            icon="edit"
            label={`Edit ${runner.name}`}
            why={runner.what === "loop" ? "A loop has no times." : null}
            onClick={() => setEdited(runner)}
          >
            Edit…
          </ActButton>
          {runner.added && (
            <ActButton small icon="remove" label={`Remove ${runner.name}`} onClick={() => setRemoved(runner)}>
              Remove…
            </ActButton>
          )}
        </div>
      ),
    },
  ];
  return (
    <Page
      title="Runners"
      note="Recurring work: runners, schedules of jobs, and what each worker does all the time."
      aside={<Refresh />}
    >
      <Loaded of={runners} skeleton={<Bones rows={6} />}>
        {({ items: lines }) =>
          lines.length === 0 ? (
            <Notice icon="runners" title="No runners yet">
              <p>A worker stores those of its application when it starts.</p>
            </Notice>
          ) : (
            <Table caption="Runners" columns={columns} rows={lines} id={(runner) => runner.name} />
          )
        }
      </Loaded>
      {edited && <EditSchedule runner={edited} onDone={runners.reload} onClose={() => setEdited(null)} />}
      {removed && (
        <RemoveSchedule runner={removed} onDone={runners.reload} onClose={() => setRemoved(null)} />
      )}
    </Page>
  );
}

function Name({ runner }: { runner: RunnerLine }) {
  return (
    <>
      <a href={to(["runners", runner.name])}>{runner.name}</a>
      <span class="below">
        {runner.schedule ? <code>{runner.schedule}</code> : null} {WHAT[runner.what]}
        {runner.added && ", added at run time"}
      </span>
    </>
  );
}

function State({ runner }: { runner: RunnerLine }) {
  if (runner.running_since) {
    return (
      <>
        <Badge tone="busy" icon="processing">
          running
        </Badge>
        <span class="below">
          since <Time at={runner.running_since} />
          {runner.running_on && ` on #${runner.running_on}`}
        </span>
      </>
    );
  }
  if (runner.triggered)
    return (
      <Badge tone="busy" icon="pending">
        will run soon
      </Badge>
    );
  if (runner.what === "loop")
    return (
      <Badge tone="ok" icon="refresh">
        always on
      </Badge>
    );
  if (runner.paused)
    return (
      <Badge tone="warn" icon="pause">
        paused
      </Badge>
    );
  return (
    <Badge tone="idle" icon="pending">
      waiting
    </Badge>
  );
}

function Next({ runner: { next_at, paused, what } }: { runner: RunnerLine }) {
  const [first, ...later] = next_at;
  if (first === undefined)
    return <span class="muted">{paused ? "paused" : what === "loop" ? "continuously" : "–"}</span>;
  return (
    <>
      <Time at={first} />
      {later.length > 0 && (
        <span class="below">then {later.map((at) => brief(at, now.peek())).join(", ")}</span>
      )}
    </>
  );
}

function Last({ runner: { last, last_at, what } }: { runner: RunnerLine }) {
  if (what === "job")
    return (
      <>
        <Time at={last_at} none="never" />
        {last_at && <span class="below">enqueued a job</span>}
      </>
    );
  if (last === null) return <span class="muted">never</span>;
  return (
    <>
      <Outcome run={last} />
      <span class="below">
        <Time at={last.started_at} />
        {last.finished_at && `, took ${duration(between(last.started_at, last.finished_at))}`}
      </span>
    </>
  );
}
