import uPlot from "uplot";
import { compact, count } from "../number";
import { type Columns, decades } from "../series";
import { colour } from "../theme";
import { duration } from "../time";

export interface Line {
  name: string;
  /** The name of a custom property. */
  colour: string;
  draw: "bar" | "area" | "line";
  /** Told apart by more than its colour. */
  dash?: number[];
  /** Beside another bar: -1 to the left, 1 to the right. */
  side?: -1 | 1;
}

export type Unit = "jobs" | "seconds";

/** Something that happened, at a time in seconds. */
export interface Mark {
  at: number;
  text: string;
}

export const HEIGHT = 176;
const FONT = "11px system-ui, sans-serif";
const SHORTEST_SECONDS = 300;
const LONG_SECONDS = 129_600;
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const BAR: Record<-1 | 0 | 1, number> = { [-1]: 0.42, 0: 0.72, 1: 0.42 };

export function told(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return "–";
  return unit === "jobs" ? compact(value) : duration(value);
}

/** What stands beside a line across: one unit, since there is room for no more. */
function beside(value: number, unit: Unit): string {
  if (unit === "jobs") return compact(value);
  return value < 1 ? `${Number((value * 1000).toPrecision(3))}\u00a0ms` : `${count(value)}\u00a0s`;
}

/** Draw columns into an element; `onCursor` is told which of them the pointer is over. */
export function plot(
  into: HTMLElement,
  columns: Columns,
  lines: Line[],
  unit: Unit,
  onCursor: (index: number | null) => void,
  marks: () => Mark[] = () => [],
): uPlot {
  const grid = { stroke: colour("line"), width: 1 };
  const axis = { stroke: colour("muted"), font: FONT, grid, gap: 6, ticks: { show: false } };
  const options: uPlot.Options = {
    width: Math.max(into.clientWidth, 120),
    height: HEIGHT,
    padding: [10, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { time: true, range: (chart, from, until) => span(chart, from, until, lines) },
      y: scale(unit),
    },
    axes: [
      { ...axis, values: moments, size: 26, space: 70, grid: { show: false } },
      { ...axis, ...labels((tick) => beside(tick, unit)), ...steps(unit), size: 52, space: 34 },
    ],
    series: [{}, ...lines.map(series)],
    hooks: {
      setCursor: [(chart) => onCursor(chart.cursor.idx ?? null)],
      draw: [(chart) => drawMarks(chart, marks())],
    },
  };
  return new uPlot(options, columns, into);
}

/** Latency on a logarithmic scale, since its percentiles lie far apart; counts from zero. */
function scale(unit: Unit): uPlot.Scale {
  if (unit === "seconds") return { distr: 3, log: 10, range: (chart) => decades(chart.data as Columns) };
  return { range: (_, __, most) => [0, Math.max(4, Math.ceil((most || 0) * 1.08))] };
}

/** Where lines stand across: at whole powers of ten, or at whole numbers. */
function steps(unit: Unit): uPlot.Axis {
  if (unit === "jobs") return { incrs: WHOLE };
  return {
    splits: (chart) => {
      const [low, high] = decades(chart.data as Columns);
      const powers = Math.round(Math.log10(high / low));
      return Array.from({ length: powers + 1 }, (_, power) => low * 10 ** power);
    },
  };
}

/** Room for half a bar at both ends; for lines, at least some minutes. */
function span(chart: uPlot, from: number, until: number, lines: Line[]): [number, number] {
  const [one = 0, other = one + 60] = chart.data[0];
  const half = (other - one) / 2;
  if (lines.some((line) => line.draw === "bar")) return [from - half, until + half];
  return [Math.min(from, until - SHORTEST_SECONDS), until];
}

function series({ name, colour: of, draw, dash, side }: Line): uPlot.Series {
  const stroke = colour(of);
  if (draw === "bar") {
    const bars = uPlot.paths.bars?.({ size: [BAR[side ?? 0], 14], align: side ?? 0, radius: 0.2, gap: 1 });
    return {
      label: name,
      stroke,
      fill: stroke,
      width: 0,
      points: { show: false },
      ...(bars && { paths: bars }),
    };
  }
  const points = { show: (chart: uPlot) => chart.data[0].length === 1 };
  const line: uPlot.Series = { label: name, stroke, width: 1.75, points, spanGaps: false };
  if (draw === "area") line.fill = colour(`${of}-soft`);
  if (dash) line.dash = dash;
  return line;
}

/** What is written at each line; nothing while there is nothing to read off. */
function labels(text: (tick: number) => string): uPlot.Axis {
  return {
    values: (chart, ticks) =>
      ticks.map((tick) => (chart.data[0].length === 0 || tick === null ? "" : text(tick))),
  };
}

/** The time of day: `14:02`. */
export function clock(seconds: number | undefined): string {
  if (seconds === undefined) return "";
  const at = new Date(seconds * 1000);
  return `${String(at.getHours()).padStart(2, "0")}:${String(at.getMinutes()).padStart(2, "0")}`;
}

/** Below each tick the time of day, or the day where the chart is about several. */
function moments(chart: uPlot, ticks: number[]): string[] {
  const times = chart.data[0];
  if (times.length === 0) return ticks.map(() => "");
  const long = (times.at(-1) ?? 0) - (times[0] ?? 0) > LONG_SECONDS;
  return ticks.map((tick) => (long ? day(tick) : clock(tick)));
}

function day(seconds: number): string {
  const at = new Date(seconds * 1000);
  const short = at.toLocaleDateString("en", { day: "numeric", month: "short" });
  return at.getHours() === 0 ? short : clock(seconds);
}

/** A line down the chart, with a few words at its top. */
function drawMarks(chart: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("muted");
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { at, text } of marks) {
    const x = Math.round(chart.valToPos(at, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const left = x > bbox.left + bbox.width / 2;
    ctx.textAlign = left ? "right" : "left";
    ctx.fillText(text, x + (left ? -4 : 4) * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}
