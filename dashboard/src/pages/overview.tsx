import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { api } from "../api";
import { tick } from "../clock";
import { LiveOverview } from "../live";
import type { Overview } from "../openapi";
import { Chart } from "../parts/chart";
import { LiveMark } from "../parts/live-mark";
import { Page } from "../parts/page";
import type { Line } from "../parts/plot";
import { QueueTable } from "../parts/queue-table";
import { Failure, Problem } from "../parts/state";
import { Tiles } from "../parts/tiles";
import { Verdict } from "../parts/verdict";
import { REFRESH } from "../resource";
import { route } from "../route";
import { backlog, counts, extended, percentiles, type Sample } from "../series";

const COMPLETED: Line[] = [{ name: "completed", colour: "accent", draw: "bar" }];
const TROUBLE: Line[] = [
  { name: "failed", colour: "bad", draw: "bar", side: -1 },
  { name: "retried", colour: "warn", draw: "bar", side: 1 },
];
const PERCENTILES: Line[] = [
  { name: "p50", colour: "accent", draw: "line" },
  { name: "p95", colour: "held", draw: "line", dash: [7, 3] },
  { name: "p99", colour: "bad", draw: "line", dash: [2, 3] },
];
const BACKLOG: Line[] = [
  { name: "due", colour: "accent", draw: "area" },
  { name: "processing", colour: "held", draw: "line", dash: [7, 3] },
];

/** By database. Outlives the page, so that coming back to it shows what was seen before. */
const trails = signal<Record<string, Sample[]>>({});

export function OverviewPage() {
  const database = route.value.database ?? "";
  const live = useLiveOverview(database);
  const overview = live.overview.value;
  const error = live.error.value;
  return (
    <Page title="Overview" aside={<LiveMark live={live} />}>
      {overview === null && error ? (
        <Failure error={error} retry={() => void live.start()} />
      ) : (
        <>
          {overview && error && (
            <Problem text={`This could not be refreshed and may be old: ${error.message}`} />
          )}
          <Board overview={overview} samples={trails.value[database] ?? []} />
        </>
      )}
    </Page>
  );
}

/** Follow the live overview while the page is open and in sight, and keep a trail of what waited. */
function useLiveOverview(database: string): LiveOverview {
  const live = useMemo(
    () =>
      new LiveOverview({
        load: (signal) => api.getOverview({}, signal),
        open: () => new EventSource(api.watchOverview()),
      }),
    [],
  );
  useEffect(() => {
    const begin = () => void live.start();
    const see = () => {
      if (live.beat.value === "paused") return;
      if (document.visibilityState === "visible") begin();
      else live.close();
    };
    const forget = live.overview.subscribe((overview) => {
      if (!overview) return;
      tick();
      const before = trails.peek();
      trails.value = { ...before, [database]: extended(before[database] ?? [], overview) };
    });
    begin();
    document.addEventListener("visibilitychange", see);
    addEventListener(REFRESH, begin);
    return () => {
      forget();
      document.removeEventListener("visibilitychange", see);
      removeEventListener(REFRESH, begin);
      live.close();
    };
  }, [live, database]);
  return live;
}

/** The whole of it; null draws the same boxes, empty, so that nothing moves when it comes. */
function Board({ overview, samples }: { overview: Overview | null; samples: Sample[] }) {
  const minutes = overview?.minutes;
  const completed = useMemo(() => counts(minutes ?? [], ["completed"]), [minutes]);
  const trouble = useMemo(() => counts(minutes ?? [], ["failed", "retried"]), [minutes]);
  const waiting = useMemo(() => percentiles(minutes ?? [], "waiting"), [minutes]);
  const running = useMemo(() => percentiles(minutes ?? [], "running"), [minutes]);
  const due = useMemo(() => backlog(samples), [samples]);
  const nothing = overview ? "Nothing ended in the last hour" : "";
  return (
    <div class="board" aria-busy={overview === null}>
      <Verdict overview={overview} />
      <Tiles overview={overview} trail={samples} />
      <div class="charts">
        <Chart
          title="Throughput"
          note="completed per minute, last hour"
          columns={completed}
          lines={COMPLETED}
          unit="jobs"
          going
          none={nothing}
        />
        <Chart
          title="Failures"
          note="per minute, last hour"
          columns={trouble}
          lines={TROUBLE}
          unit="jobs"
          going
          none={overview ? "Nothing failed in the last hour" : ""}
        />
        <Chart
          title="Waiting"
          note="from due to started, last hour"
          columns={waiting}
          lines={PERCENTILES}
          unit="seconds"
          none={nothing}
        />
        <Chart
          title="Running"
          note="handlers, last hour"
          columns={running}
          lines={PERCENTILES}
          unit="seconds"
          none={nothing}
        />
        <Chart
          title="Backlog"
          note="since this page was opened"
          columns={due}
          lines={BACKLOG}
          unit="jobs"
          none={overview ? "Nothing waits" : ""}
        />
      </div>
      <QueueTable queues={overview?.queues ?? null} />
    </div>
  );
}
