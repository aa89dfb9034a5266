import { signal } from "@preact/signals";
import { recall, remember } from "./memory";

export interface Place {
  key: string;
  name: string;
  path: string;
}

/** The pages, in the order of the menu; `g` and then the key goes there. */
export const PLACES: readonly Place[] = [
  { key: "o", name: "Overview", path: "" },
  { key: "t", name: "Trends", path: "trends" },
  { key: "j", name: "Jobs", path: "jobs" },
  { key: "c", name: "Chains", path: "chains" },
  { key: "d", name: "Dead letters", path: "dead-letters" },
  { key: "k", name: "Bulk actions", path: "bulk-actions" },
  { key: "q", name: "Queues", path: "queues" },
  { key: "l", name: "Limits", path: "limits" },
  { key: "w", name: "Workers", path: "workers" },
  { key: "r", name: "Runners", path: "runners" },
  { key: "e", name: "Relays", path: "relays" },
  { key: "h", name: "Archive", path: "archive" },
  { key: "a", name: "Audit", path: "audit" },
];

export type Command = { go: string } | "databases" | "help" | "search" | "refresh" | "theme";

const SINGLE: Record<string, Command> = { "?": "help", "/": "search", r: "refresh", t: "theme" };
/** After `g`: the page of all databases, the first page where there is only one. */
export const DATABASES_KEY = "b";
const SEQUENCE_MS = 1500;

/** Single keys can be in the way of voice control and of screen readers, so they can be turned off. */
export const enabled = signal(recall("shortcuts") !== "off");

export function setEnabled(on: boolean): void {
  enabled.value = on;
  remember("shortcuts", on ? null : "off");
}

/** Make a function that tells what each pressed key means; null: nothing, or not yet. */
export function reader(): (key: string, at: number) => Command | null {
  let begun = Number.NEGATIVE_INFINITY;
  return (key, at) => {
    const within = at - begun < SEQUENCE_MS;
    begun = Number.NEGATIVE_INFINITY;
    if (within) {
      if (key === DATABASES_KEY) return "databases";
      const place = PLACES.find((one) => one.key === key);
      return place ? { go: place.path } : null;
    }
    if (key === "g") {
      begun = at;
      return null;
    }
    return SINGLE[key] ?? null;
  };
}

/** Whether a key is being typed into something, or held with another. */
export function isTyping(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return true;
  const target = event.target;
  return (
    target instanceof HTMLElement && (target.isContentEditable || target.matches("input, textarea, select"))
  );
}
