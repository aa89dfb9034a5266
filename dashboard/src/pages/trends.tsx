import { useMemo } from "preact/hooks";
import { api } from "../api";
import { compact, count } from "../number";
import type { TrendLine, Trends } from "../openapi";
import { Chart } from "../parts/chart";
import { Page, Panel } from "../parts/page";
import type { Line } from "../parts/plot";
import { Refresh } from "../parts/refresh";
import { Sparkline } from "../parts/sparkline";
import { Bones, Loaded, Notice } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { go, route, to } from "../route";
import { duration } from "../time";
import { BY, choice, columns, most, percentiles, RANGES, sum } from "../trend";

const EVERY_MS = 30_000;
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
  { name: "running", colour: "held", draw: "line", dash: [7, 3] },
];
const OLDEST: Line[] = [{ name: "oldest", colour: "warn", draw: "line" }];

/** What ended and what waited, up to a week back. The range and what it is divided by stand in the address. */
export function TrendsPage() {
  const { query } = route.value;
  const range = choice(RANGES, query.get("range"));
  const by = choice(BY, query.get("by"));
  const queue = query.get("queue") ?? undefined;
  const kind = query.get("kind") ?? undefined;
  const trends = useResource(
    `trends ${range} ${by} ${queue} ${kind}`,
    (signal) => api.getTrends({ range, by, ...(queue && { queue }), ...(kind && { kind }) }, signal),
    EVERY_MS,
  );
  const choose = (change: Record<string, string>) =>
    go(to("trends", { range, by, queue: queue ?? null, kind: kind ?? null, ...change }));
  const about = [queue && `the queue ${queue}`, kind && `the kind ${kind}`].filter(Boolean).join(" and ");
  return (
    <Page
      title="Trends"
      note={
        about ? (
          <>
            Only {about}. <a href={to("trends", { range, by })}>All</a>
          </>
        ) : undefined
      }
      aside={<Refresh />}
    >
      <div class="trend-choices">
        <Choice
          label="Range"
          name="range"
          among={RANGES}
          value={range}
          onChange={(value) => choose({ range: value })}
        />
        <Choice label="By" name="by" among={BY} value={by} onChange={(value) => choose({ by: value })} />
      </div>
      <Loaded of={trends} skeleton={<Bones rows={4} tall />}>
        {(shown) => <Board trends={shown} />}
      </Loaded>
    </Page>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  name: string;
  among: [T, string][];
  value: T;
  onChange: (value: T) => void;
}

function Choice<T extends string>({ label, name, among, value, onChange }: ChoiceProps<T>) {
  return (
    <fieldset class="segments">
      <legend class="hidden">{label}</legend>
      {among.map(([one, text]) => (
        <label key={one}>
          <input
            type="radio"
            name={name}
            value={one}
            checked={one === value}
            onChange={() => onChange(one)}
          />
          <span>{text}</span>
        </label>
      ))}
    </fieldset>
  );
}

function Board({ trends }: { trends: Trends }) {
  const { total, versions } = trends;
  const step = duration(trends.step_seconds);
  const drawn = useMemo(
    () => ({
      completed: columns(trends, total.completed),
      trouble: columns(trends, total.failed, total.retried),
      waiting: percentiles(trends, total.waiting),
      running: percentiles(trends, total.running),
      backlog: columns(trends, total.due, total.processing),
      oldest: columns(
        trends,
        total.oldest_due_seconds.map((value) => value && Math.max(value, 0.01)),
      ),
      marks: versions.map(({ version, first_seen_at }) => ({
        at: Date.parse(first_seen_at) / 1000,
        text: version,
      })),
    }),
    [trends, total, versions],
  );
  const chart = (
    title: string,
    note: string,
    drawing: keyof typeof drawn,
    lines: Line[],
    unit: "jobs" | "seconds",
  ) => (
    <Chart
      title={title}
      note={note}
      columns={drawn[drawing] as ReturnType<typeof columns>}
      lines={lines}
      unit={unit}
      marks={drawn.marks}
      going
      none="Nothing in this time"
    />
  );
  return (
    <>
      <div class="charts">
        {chart("Throughput", `completed in ${step}`, "completed", COMPLETED, "jobs")}
        {chart("Failures", `in ${step}`, "trouble", TROUBLE, "jobs")}
        {chart("Waiting", `from due to started, by ${step}`, "waiting", PERCENTILES, "seconds")}
        {chart("Running", `handlers, by ${step}`, "running", PERCENTILES, "seconds")}
        {chart("Backlog", "the most at one count", "backlog", BACKLOG, "jobs")}
        {chart("Oldest due job", "how long it had waited", "oldest", OLDEST, "seconds")}
      </div>
      {versions.length > 0 && (
        <p class="note trend-versions">
          New versions:{" "}
          {versions.map((one, place) => (
            <span key={one.version}>
              {place > 0 && ", "}
              <b>{one.version}</b> <Time at={one.first_seen_at} />
            </span>
          ))}
        </p>
      )}
      <Panel title={BY.find(([by]) => by === trends.by)?.[1] ?? ""} note="The twelve with the most jobs.">
        {trends.lines.length === 0 ? (
          <Notice icon="trends" title="Nothing in this time" />
        ) : (
          <Table
            caption="Trends"
            columns={LINES[trends.by]}
            rows={trends.lines.map((line) => ({ line, trends }))}
            id={({ line }) => line.id ?? line.name}
          />
        )}
      </Panel>
    </>
  );
}

interface Row {
  line: TrendLine;
  trends: Trends;
}

const ENDED: Column<Row>[] = [
  {
    name: "Ended",
    cell: ({ line }) => (
      <Sparkline
        values={line.completed}
        bad={line.failed}
        label={`${line.name}: ${count(sum(line.completed))} completed, ${count(sum(line.failed))} failed`}
      />
    ),
  },
  { name: "Completed", end: true, cell: ({ line }) => compact(sum(line.completed)) },
  {
    name: "Failed",
    end: true,
    cell: ({ line }) => (
      <span class={sum(line.failed) > 0 ? "text-bad" : "muted"}>{compact(sum(line.failed))}</span>
    ),
  },
  { name: "Retried", end: true, cell: ({ line }) => compact(sum(line.retried)) },
];
const WAITED: Column<Row>[] = [
  { name: "Waits p95, worst", end: true, cell: ({ line }) => duration(most(line.waiting.p95)) },
  { name: "Runs p95, worst", end: true, cell: ({ line }) => duration(most(line.running.p95)) },
  { name: "Most due", end: true, cell: ({ line }) => compact(most(line.due) ?? 0) },
];

function named(by: Trends["by"]): Column<Row> {
  return {
    name: { queue: "Queue", kind: "Kind", worker: "Worker" }[by],
    head: true,
    cell: ({ line, trends: { range } }) =>
      by === "worker" ? (
        <a href={to("workers")}>{line.name}</a>
      ) : (
        <a href={to("trends", { range, by: by === "queue" ? "kind" : "queue", [by]: line.name })}>
          {line.name}
        </a>
      ),
  };
}

const LINES: Record<Trends["by"], Column<Row>[]> = {
  queue: [named("queue"), ...ENDED, ...WAITED],
  kind: [named("kind"), ...ENDED, ...WAITED],
  worker: [named("worker"), ...ENDED],
};
