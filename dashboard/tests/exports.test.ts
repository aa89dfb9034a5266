import { describe, expect, it } from "vitest";
import { before, period, step } from "../src/exports";
import type { ExportLine } from "../src/openapi";

const LINE: ExportLine = {
  source: "job_history",
  starts_on: "2026-03-01",
  ends_on: "2026-03-02",
  part: 1,
  state: "verified",
  running: false,
  progress: null,
  rows_done: 10,
  rows: 10,
  bytes: 100,
  started_at: "2026-03-02T03:47:00Z",
  uploaded_at: null,
  verified_at: null,
  drop_eligible_at: null,
  dropped_at: null,
  object: "x/job_history/day=2026-03-01/1.parquet",
  checksum: null,
  error: null,
};

describe("an export", () => {
  it("is named by its day, its month, and its part", () => {
    expect(period(LINE)).toBe("2026-03-01");
    expect(period({ ...LINE, ends_on: "2026-04-01" })).toBe("2026-03");
    expect(period({ ...LINE, part: 2 })).toBe("2026-03-01, part 2");
    expect(before("2026-03-01")).toBe("2026-02-28");
  });

  it("has one step of its way at a time", () => {
    expect(step(LINE).name).toBe("verified");
    expect(step({ ...LINE, state: "dropped" }).name).toBe("in the archive only");
    expect(step({ ...LINE, state: "exporting", running: true }).name).toBe("exporting");
    expect(step({ ...LINE, state: "uploaded", running: true }).name).toBe("verifying");
    expect(step({ ...LINE, state: "exporting" }).name).toBe("waits for its export");
  });

  it("that failed is told so until it runs again", () => {
    const failed: ExportLine = { ...LINE, state: "exporting", error: "the bucket is gone" };
    expect(step(failed).tone).toBe("bad");
    expect(step({ ...failed, running: true }).tone).toBe("busy");
  });
});
