import { signal } from "@preact/signals";

// A browser's clock may be wrong; what is due is decided by the server's, so ages are told by that one.
let ahead = 0;
const TOLERATED_MS = 5000;

/** Now by the server's clock, in milliseconds; told anew every second while the page is seen. */
export const now = signal(Date.now());

export function serverNow(): number {
  return Date.now() + ahead;
}

/** Learn how far the server's clock is ahead from the `Date` header of an answer. */
export function learn(date: string | null): void {
  const at = date === null ? Number.NaN : Date.parse(date);
  if (Number.isNaN(at)) return;
  const difference = at - Date.now();
  ahead = Math.abs(difference) > TOLERATED_MS ? difference : 0;
  tick();
}

/** Something new has come: what happened just now must not seem to lie ahead. */
export function tick(): void {
  now.value = serverNow();
}

export function startClock(): void {
  setInterval(() => {
    if (document.visibilityState === "visible") tick();
  }, 1000);
}
