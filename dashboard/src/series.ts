import type { Minute, Overview } from "./openapi";

/** Columns as uPlot takes them: times in seconds first, then each series; null where nothing is known. */
export type Columns = [number[], ...(number | null)[][]];

export type Count = "completed" | "failed" | "retried" | "cancelled";

export function counts(minutes: Minute[], names: Count[]): Columns {
  return [times(minutes), ...names.map((name) => minutes.map((minute) => minute[name]))];
}

export function percentiles(minutes: Minute[], which: "waiting" | "running"): Columns {
  const of = (name: "p50" | "p95" | "p99") => minutes.map((minute) => positive(minute[which][name]));
  return [times(minutes), of("p50"), of("p95"), of("p99")];
}

/** A logarithmic scale has no place for nothing. */
function positive(seconds: number | null): number | null {
  return seconds === null ? null : Math.max(seconds, 0.001);
}

function times(minutes: Minute[]): number[] {
  return minutes.map((minute) => Date.parse(minute.minute) / 1000);
}

/** The bounds of a scale of seconds: whole powers of ten around what there is. */
export function decades(columns: Columns): [number, number] {
  const [, ...series] = columns;
  const known = series.flat().filter((value) => value !== null);
  if (known.length === 0) return [0.01, 10];
  const low = 10 ** Math.floor(Math.log10(Math.min(...known)));
  const high = 10 ** Math.ceil(Math.log10(Math.max(...known)));
  return low === high ? [low, high * 10] : [low, high];
}

/** What waited when: kept here, since the server only tells how it is now. */
export interface Sample {
  at: number;
  due: number;
  processing: number;
  oldest: number;
}

const MOST_SAMPLES = 720;
const KEPT_SECONDS = 3600;

/** Add what an overview tells to the trail; the same count twice is one sample. */
export function extended(trail: Sample[], overview: Overview): Sample[] {
  const at = Date.parse(overview.counted_at ?? overview.at) / 1000;
  const { due, processing, oldest_due_seconds: oldest } = overview.depth;
  const last = trail.at(-1);
  if (last && last.at >= at) return trail;
  const kept = trail.filter((sample) => sample.at > at - KEPT_SECONDS);
  return [...kept, { at, due, processing, oldest }].slice(-MOST_SAMPLES);
}

export function backlog(trail: Sample[]): Columns {
  return [trail.map(({ at }) => at), trail.map(({ due }) => due), trail.map(({ processing }) => processing)];
}

/** The points of a sparkline in a box, the largest value at its top; a flat one lies at its bottom. */
export function sparkline(values: number[], width: number, height: number): string {
  const top = Math.max(...values, 1);
  const step = values.length > 1 ? width / (values.length - 1) : 0;
  return values
    .map((value, index) => `${trimmed(index * step)},${trimmed(height - (value / top) * height)}`)
    .join(" ");
}

function trimmed(value: number): number {
  return Math.round(value * 10) / 10;
}
