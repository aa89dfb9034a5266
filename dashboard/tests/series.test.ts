import { describe, expect, it } from "vitest";
import type { Minute, Overview } from "../src/openapi";
import { backlog, counts, decades, extended, percentiles, type Sample, sparkline } from "../src/series";

const minute = (at: string, change: Partial<Minute> = {}): Minute => ({
  minute: at,
  completed: 0,
  failed: 0,
  retried: 0,
  cancelled: 0,
  waiting: { p50: null, p95: null, p99: null },
  running: { p50: null, p95: null, p99: null },
  ...change,
});

const overview = (counted_at: string | null, due: number): Overview =>
  ({
    at: "2026-07-03T12:30:00Z",
    counted_at,
    depth: { due, processing: 2, oldest_due_seconds: 7, pending: 0, blocked: 0, stuck: 0 },
  }) as Overview;

describe("the columns of a chart", () => {
  const minutes = [
    minute("2026-07-03T12:00:00Z", { completed: 5, failed: 1 }),
    minute("2026-07-03T12:01:00Z", { completed: 7, waiting: { p50: 0, p95: 0.2, p99: 1.5 } }),
  ];

  it("have seconds first and then what was asked for", () => {
    const at = Date.parse("2026-07-03T12:00:00Z") / 1000;
    expect(counts(minutes, ["completed", "failed"])).toEqual([
      [at, at + 60],
      [5, 7],
      [1, 0],
    ]);
  });

  it("leave a gap where nothing ended, and show the shortest as a millisecond", () => {
    expect(percentiles(minutes, "waiting").slice(1)).toEqual([
      [null, 0.001],
      [null, 0.2],
      [null, 1.5],
    ]);
  });

  it("reach from a power of ten to a power of ten", () => {
    expect(decades(percentiles(minutes, "waiting"))).toEqual([0.001, 10]);
    expect(decades([[1], [1]])).toEqual([1, 10]);
    expect(decades([[1], [null]])).toEqual([0.01, 10]);
  });
});

describe("the trail of what waited", () => {
  it("takes a count once, however often it is told", () => {
    const one = extended([], overview("2026-07-03T12:30:00Z", 4));
    const two = extended(one, overview("2026-07-03T12:30:00Z", 4));
    expect(two).toBe(one);
    expect(backlog(one)).toEqual([[Date.parse("2026-07-03T12:30:00Z") / 1000], [4], [2]]);
  });

  it("takes the time of the answer where nothing was counted yet", () => {
    expect(extended([], overview(null, 0))[0]?.at).toBe(Date.parse("2026-07-03T12:30:00Z") / 1000);
  });

  it("forgets what is older than an hour", () => {
    const old: Sample = { at: Date.parse("2026-07-03T11:00:00Z") / 1000, due: 9, processing: 0, oldest: 0 };
    expect(extended([old], overview("2026-07-03T12:30:00Z", 4))).toHaveLength(1);
  });

  it("does not grow without a limit", () => {
    let trail: Sample[] = [];
    for (let second = 0; second < 1500; second += 1) {
      const at = new Date(Date.parse("2026-07-03T12:00:00Z") + second * 1000).toISOString();
      trail = extended(trail, overview(at, second));
    }
    expect(trail).toHaveLength(720);
    expect(trail.at(-1)?.due).toBe(1499);
  });
});

describe("a sparkline", () => {
  it("has its largest value at the top and nothing at the bottom", () => {
    expect(sparkline([0, 5, 10], 100, 20)).toBe("0,20 50,10 100,0");
  });

  it("of nothing lies flat at the bottom", () => {
    expect(sparkline([0, 0], 10, 20)).toBe("0,20 10,20");
  });

  it("of one value or none does not fail", () => {
    expect(sparkline([3], 10, 20)).toBe("0,0");
    expect(sparkline([], 10, 20)).toBe("");
  });
});
