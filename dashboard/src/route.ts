import { signal } from "@preact/signals";

export interface Route {
  /** Which of several databases the page is about: `#/@eu/jobs` is about `eu`; null where none is named. */
  database: string | null;
  /** The parts of the path, decoded: `#/jobs/7` is `["jobs", "7"]`, the overview has none. */
  path: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const database = parts[0]?.startsWith("@") ? (parts.shift()?.slice(1) ?? null) : null;
  return { database, path: parts, query: new URLSearchParams(query) };
}

export const route = signal<Route>(parse(""));

/** The address of a page, in the same database: `to("jobs", {status: "failed"})` is `#/jobs?status=failed`. */
export function to(
  path: string | string[],
  query: Record<string, string | null | undefined> | URLSearchParams = {},
  database: string | null = route.value.database,
): string {
  const parts = (Array.isArray(path) ? path : path.split("/")).filter(Boolean).map(encodeURIComponent);
  if (database !== null) parts.unshift(`@${encodeURIComponent(database)}`);
  const text = (query instanceof URLSearchParams ? query : present(query)).toString();
  return `#/${parts.join("/")}${text && `?${text}`}`;
}

export function startRouting(): void {
  const read = () => {
    route.value = parse(location.hash);
  };
  read();
  addEventListener("hashchange", read);
}

export function go(address: string): void {
  location.hash = address;
}

function present(query: Record<string, string | null | undefined>): URLSearchParams {
  const kept = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return new URLSearchParams(kept);
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
