// Made-up answers about the archive.
import { ago } from "./work.mjs";

const DAY = 86_400;
const date = (days) => ago(days * DAY).slice(0, 10);
const FAMILIES = ["attempt", "delivery", "event", "job_failed", "job_history", "run"];
const KEPT = { attempt: 90, delivery: 30, event: 7, job_failed: 90, job_history: 14, run: 30 };

const source = (name, index) => ({
  source: name,
  periods: 120,
  rows: 1_204_112 * (index + 1),
  bytes: 88_120_331 * (index + 1) ** 2,
  first_day: date(121),
  ends_on: date(0),
  unfinished: index === 4 ? 2 : 0,
  verified: KEPT[name] ?? 30,
  dropped: 120 - (KEPT[name] ?? 30),
  next_drop: ago(-DAY * (index - 0.5)),
});

export const archive = (mood) => ({
  configured: mood !== "empty",
  bucket: mood === "empty" ? null : "s3://shop-archive/holdfast",
  archived: mood !== "empty",
  sources: mood === "empty" ? [] : [...FAMILIES, "public.tenders"].map(source),
  retention: FAMILIES.map((family) => ({
    family,
    days: KEPT[family],
    archived: mood !== "empty",
    changeable: !["attempt", "delivery"].includes(family),
  })),
  next_drop: mood === "empty" ? null : ago(-DAY / 2),
});

const line = (name, days, extra = {}) => ({
  source: name,
  starts_on: date(days),
  ends_on: date(days - 1),
  part: 1,
  state: days > KEPT[name] ? "dropped" : "verified",
  running: false,
  progress: null,
  rows_done: 120_411,
  rows: 120_411,
  bytes: 8_812_033,
  started_at: ago(days * DAY),
  uploaded_at: ago(days * DAY),
  verified_at: ago(days * DAY),
  drop_eligible_at: ago((days - KEPT[name]) * DAY),
  dropped_at: days > KEPT[name] ? ago((days - KEPT[name]) * DAY) : null,
  object: `c0ffee/${name}/day=${date(days)}/1.parquet`,
  checksum: null,
  error: null,
  ...extra,
});
const begun = { uploaded_at: null, verified_at: null, drop_eligible_at: null, rows: null, bytes: null, object: null };

export const exports_ = (query) => {
  const wanted = FAMILIES.filter((name) => [null, "", name].includes(query.get("source")));
  const lines = Array.from({ length: 20 }, (_, index) => wanted.map((name) => line(name, index + 1))).flat();
  const jobs = lines.filter((one) => one.source === "job_history");
  if (jobs.length > 0) {
    Object.assign(jobs[0], begun, { state: "exporting", running: true, progress: 0.42, rows_done: 50_112 });
    Object.assign(jobs[1], begun, { state: "exporting", error: "ArchiveError: the bucket refused the file: 403 Forbidden" });
  }
  const limit = Number(query.get("limit") ?? 200);
  return { exports: lines.slice(0, limit), complete: lines.length <= limit };
};
