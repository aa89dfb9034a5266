const SECOND = 1;
const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** A length of time, at most two units: `350 ms`, `1.2 s`, `3 min 20 s`, `2 h 5 min`, `4 d`. */
export function duration(seconds: number | null): string {
  if (seconds === null || Number.isNaN(seconds)) return "–";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds === 0) return "0\u00a0s";
  if (seconds < 0.0995) return `${round(seconds * 1000, seconds < 0.00995 ? 1 : 0)}\u00a0ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)}\u00a0ms`;
  if (seconds < 9.95) return `${round(seconds, 1)}\u00a0s`;
  if (seconds < 59.5) return `${Math.round(seconds)}\u00a0s`;
  const whole = Math.round(seconds);
  if (whole < HOUR) return two(whole, MINUTE, "min", SECOND, "s");
  if (whole < DAY) return two(whole, HOUR, "h", MINUTE, "min");
  if (whole < 10 * DAY) return two(whole, DAY, "d", HOUR, "h");
  return `${Math.round(whole / DAY)}\u00a0d`;
}

/** How long ago, or how soon: `just now`, `12 s ago`, `in 3 min`, `2 d ago`. */
export function relative(iso: string, now: number): string {
  const seconds = (Date.parse(iso) - now) / 1000;
  const length = Math.abs(seconds);
  if (Number.isNaN(length)) return iso;
  if (length < 1.5) return "just now";
  const told = coarse(Math.round(length));
  return seconds < 0 ? `${told} ago` : `in ${told}`;
}

/** A moment in the reader's own zone: `2026-07-03 14:02:11`. */
export function absolute(iso: string): string {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  return `${day(at)} ${clock(at)}`;
}

/** As short as it can be told: `14:02` today, `3 Jul 14:02` this year, else `2026-07-03`. */
export function brief(iso: string, now: number): string {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  const today = new Date(now);
  const short = clock(at).slice(0, 5);
  if (day(at) === day(today)) return short;
  if (at.getFullYear() !== today.getFullYear()) return day(at);
  return `${at.getDate()}\u00a0${MONTHS[at.getMonth()]}\u00a0${short}`;
}

/** From a `datetime-local` field, which is in the reader's zone, to ISO in UTC; null when it is empty or wrong. */
export function fromField(value: string): string | null {
  const at = new Date(value);
  return value === "" || Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** From ISO to what a `datetime-local` field holds. */
export function toField(iso: string | null | undefined): string {
  const at = new Date(iso ?? "");
  return Number.isNaN(at.getTime()) ? "" : `${day(at)}T${clock(at).slice(0, 5)}`;
}

export function between(from: string, until: string): number {
  return (Date.parse(until) - Date.parse(from)) / 1000;
}

/** A length of time in one unit, where there is little room: `12 s`, `30 min`, `2 d`. */
export function coarse(seconds: number): string {
  if (seconds < 10) return duration(seconds);
  if (seconds < MINUTE) return `${Math.round(seconds)}\u00a0s`;
  if (seconds < HOUR) return `${Math.round(seconds / MINUTE)}\u00a0min`;
  if (seconds < 2 * DAY) return `${Math.round(seconds / HOUR)}\u00a0h`;
  return `${Math.round(seconds / DAY)}\u00a0d`;
}

function two(seconds: number, large: number, largeName: string, small: number, smallName: string): string {
  const whole = Math.floor(seconds / large);
  const rest = Math.floor((seconds - whole * large) / small);
  const told = `${whole}\u00a0${largeName}`;
  return rest === 0 ? told : `${told} ${rest}\u00a0${smallName}`;
}

function round(value: number, digits: number): string {
  return Number(value.toFixed(digits)).toString();
}

function day(at: Date): string {
  // A year is typed digit by digit: 0002, 0020, 0202, 2027.
  return `${String(at.getFullYear()).padStart(4, "0")}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

function clock(at: Date): string {
  return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}
