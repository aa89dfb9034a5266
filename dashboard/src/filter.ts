import type { JobFilter, Status } from "./openapi";

export const STATUSES: readonly Status[] = [
  "blocked",
  "pending",
  "processing",
  "completed",
  "failed",
  "cancelled",
];

export const WORDS = ["kind", "queue", "text", "order_key", "tag", "unique_key", "error_code"] as const;
export const TIMES = ["created_from", "created_until"] as const;
const LONGEST: Record<(typeof WORDS)[number], number> = {
  kind: 200,
  queue: 200,
  text: 200,
  order_key: 500,
  tag: 100,
  unique_key: 500,
  error_code: 200,
};

/** What each field is called where people read it. */
export const NAMES: Record<keyof JobFilter, string> = {
  status: "Status",
  kind: "Kind",
  queue: "Queue",
  text: "Text in payload",
  order_key: "Order key",
  tag: "Tag",
  unique_key: "Unique key",
  error_code: "Error code",
  created_from: "Created from",
  created_until: "Created until",
};

/** Read a filter from an address; what is not understood is left out. */
export function fromQuery(query: URLSearchParams): JobFilter {
  const filter: JobFilter = {};
  const status = query.get("status");
  if (isStatus(status)) filter.status = status;
  for (const field of WORDS) {
    const value = query.get(field)?.replaceAll("\0", "").slice(0, LONGEST[field]);
    if (value) filter[field] = value;
  }
  for (const field of TIMES) {
    const at = Date.parse(query.get(field) ?? "");
    if (!Number.isNaN(at)) filter[field] = new Date(at).toISOString();
  }
  return filter;
}

/** The other way: the same filter always gives the same address. */
export function toQuery(filter: JobFilter): URLSearchParams {
  const query = new URLSearchParams();
  for (const field of ["status", ...WORDS, ...TIMES] as const) {
    const value = filter[field];
    if (value) query.set(field, value);
  }
  return query;
}

export function isEmpty(filter: JobFilter): boolean {
  return toQuery(filter).size === 0;
}

export function isStatus(value: string | null): value is Status {
  return STATUSES.includes(value as Status);
}
