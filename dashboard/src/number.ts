// A number and its unit stay on one line.
const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const UNITS = ["KiB", "MiB", "GiB", "TiB"];
const STEPS: [number, string][] = [
  [1e9, "\u00a0G"],
  [1e6, "\u00a0M"],
  [1e3, "\u00a0k"],
];

/** All digits, in groups: `12,345`. */
export function count(value: number): string {
  return GROUPED.format(value);
}

/** Three digits at most from ten thousand on: `9,999`, `12.3 k`, `1.25 M`. */
export function compact(value: number): string {
  if (Math.abs(value) < 10_000) return GROUPED.format(Math.round(value * 100) / 100);
  for (const [step, unit] of STEPS) {
    if (Math.abs(value) >= step) return `${Number((value / step).toPrecision(3))}${unit}`;
  }
  return GROUPED.format(value);
}

/** A number and its noun: `1 job`, `2 jobs`, `12,345 jobs`. */
export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** The attempts of a job and their limit: `2 of 3`, `7, no limit`. */
export function tries(attempt: number, limit: number | null): string {
  return limit === null ? `${attempt}, no limit` : `${attempt} of ${limit}`;
}

/** A part of the whole in per cent; `0 %` of nothing. */
export function share(part: number, whole: number): string {
  if (whole === 0 || part === 0) return "0\u00a0%";
  const percent = (part / whole) * 100;
  if (percent < 0.1) return "<\u00a00.1\u00a0%";
  return `${Number(percent.toFixed(percent < 10 ? 1 : 0))}\u00a0%`;
}

export function bytes(value: number): string {
  if (value < 1024) return many(value, "byte");
  const step = Math.min(Math.floor(Math.log2(value) / 10), UNITS.length);
  return `${GROUPED.format(Number((value / 1024 ** step).toFixed(1)))}\u00a0${UNITS[step - 1]}`;
}
