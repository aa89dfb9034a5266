import { Client } from "./client";
import { learn } from "./clock";
import { operations } from "./openapi";
import { route } from "./route";

type Listener = () => void;

const listeners = new Set<Listener>();

const client = new Client({
  base: document.baseURI,
  fetch: (input, init) => fetch(input, init),
  onUnauthorized: () => {
    for (const listener of listeners) listener();
  },
  onDate: learn,
});

export function onUnauthorized(listener: Listener): void {
  listeners.add(listener);
}

/** Every route of the operations API, of the database whose pages are shown. */
export const api = operations(client, (path) => {
  const { database } = route.value;
  return database === null ? `api/v1/${path}` : `api/v1/databases/${encodeURIComponent(database)}/${path}`;
});
