import { describe, expect, it } from "vitest";
import type { Trends } from "../src/openapi";
import { BY, choice, columns, most, percentiles, RANGES, sum } from "../src/trend";

const trends = { at: ["2026-07-03T12:00:00Z", "2026-07-03T12:05:00Z"] } as Trends;
const start = Date.parse("2026-07-03T12:00:00Z") / 1000;

describe("a chart of the past", () => {
  it("has the range of the address, or the first one", () => {
    expect(choice(RANGES, "24h")).toBe("24h");
    expect(choice(RANGES, "9y")).toBe("1h");
    expect(choice(BY, null)).toBe("queue");
  });

  it("has seconds first, and gaps where nothing ended", () => {
    expect(columns(trends, [1, 2])).toEqual([
      [start, start + 300],
      [1, 2],
    ]);
    const times = { p50: [null, 0], p95: [null, 0.2], p99: [null, 1.5] };
    expect(percentiles(trends, times).slice(1)).toEqual([
      [null, 0.0001],
      [null, 0.2],
      [null, 1.5],
    ]);
  });

  it("tells the largest value that is known", () => {
    expect(most([null, 3, 2])).toBe(3);
    expect(most([null])).toBeNull();
    expect(sum([1, 2])).toBe(3);
  });
});
