import type { ExportLine } from "./openapi";
import type { Tone } from "./story";

/** What the rows of a source are, for people. */
export const SOURCES: Record<string, string> = {
  job_history: "completed and cancelled jobs",
  job_failed: "dead letters",
  attempt: "attempts of jobs",
  event: "events",
  delivery: "deliveries of events",
  run: "runs of runners",
};

export interface ExportStep {
  name: string;
  tone: Tone;
  icon: "processing" | "pending" | "completed" | "failed" | "archive";
}

/** How far a period is on its way into the archive. */
export function step({ state, running, error }: ExportLine): ExportStep {
  if (running)
    return { name: state === "uploaded" ? "verifying" : "exporting", tone: "busy", icon: "processing" };
  if (state === "dropped") return { name: "in the archive only", tone: "held", icon: "archive" };
  if (state === "verified") return { name: "verified", tone: "ok", icon: "completed" };
  if (error) return { name: "failed, tried again", tone: "bad", icon: "failed" };
  return { name: "waits for its export", tone: "idle", icon: "pending" };
}

/** A day as `2026-03-01`, a month as `2026-03`; later parts have their number. */
export function period({
  starts_on,
  ends_on,
  part,
}: Pick<ExportLine, "starts_on" | "ends_on" | "part">): string {
  const days = (Date.parse(ends_on) - Date.parse(starts_on)) / 86_400_000;
  const name = days > 1 ? starts_on.slice(0, 7) : starts_on;
  return part > 1 ? `${name}, part ${part}` : name;
}

/** The day before, as the last one of a period that ends before `day`. */
export function before(day: string): string {
  return new Date(Date.parse(day) - 86_400_000).toISOString().slice(0, 10);
}

export function exportId({ source, starts_on, part }: ExportLine): string {
  return `${source} ${starts_on} ${part}`;
}
