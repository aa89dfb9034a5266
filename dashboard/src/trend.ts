import type { TrendLine, Trends } from "./openapi";
import type { Columns } from "./series";

export const RANGES: [Trends["range"], string][] = [
  ["1h", "1 hour"],
  ["6h", "6 hours"],
  ["24h", "24 hours"],
  ["7d", "7 days"],
];
export const BY: [Trends["by"], string][] = [
  ["queue", "Queues"],
  ["kind", "Kinds"],
  ["worker", "Workers"],
];

/** One of the values that a part of the address may have; the first where it has another, or none. */
export function choice<T extends string>(among: [T, string][], value: string | null): T {
  const found = among.find(([one]) => one === value) ?? among[0];
  if (!found) throw new Error("nothing to choose from");
  return found[0];
}

export function times(trends: Trends): number[] {
  return trends.at.map((at) => Date.parse(at) / 1000);
}

/** The columns of a chart from those of a line. */
export function columns(trends: Trends, ...series: (number | null)[][]): Columns {
  return [times(trends), ...series];
}

/** Percentiles, for a logarithmic scale, which has no place for nothing. */
export function percentiles(trends: Trends, { p50, p95, p99 }: TrendLine["waiting"]): Columns {
  const shown = (values: (number | null)[]) =>
    values.map((value) => (value === null ? null : Math.max(value, 0.0001)));
  return columns(trends, shown(p50), shown(p95), shown(p99));
}

export function sum(values: number[]): number {
  return values.reduce((whole, value) => whole + value, 0);
}

/** The largest of the known values; null: none is known. */
export function most(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : Math.max(...known);
}
