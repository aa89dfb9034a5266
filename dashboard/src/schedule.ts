/** The times of a schedule as a form has them: of both ways, so that a change of the way loses nothing. */
export interface Times {
  by: "interval" | "cron";
  seconds: string;
  line: string;
  zone: string;
}

/** Read a stored schedule, `every 120s` or `17 3 * * * America/Santiago`. */
export function timesOf(schedule: string): Times {
  const every = /^every ([0-9.]+)s$/.exec(schedule);
  if (every) return { by: "interval", seconds: every[1] ?? "", line: "", zone: "UTC" };
  const words = schedule.split(" ");
  return { by: "cron", seconds: "", line: words.slice(0, -1).join(" "), zone: words.at(-1) ?? "" };
}

/** Write the schedule as it is stored; null where something is missing. */
export function scheduleText({ by, seconds, line, zone }: Times): string | null {
  if (by === "interval") return Number(seconds) > 0 ? `every ${Number(seconds)}s` : null;
  return line.trim() && zone.trim() ? `${line.trim()} ${zone.trim()}` : null;
}
