import { computed, signal } from "@preact/signals";
import { api, onUnauthorized } from "./api";
import { type ApiError, asApiError } from "./client";
import type { Me, Role } from "./openapi";
import { say } from "./parts/toast";

export type Session =
  | { state: "asking" }
  | { state: "in"; me: Me }
  | { state: "out"; note: string | null }
  | { state: "failed"; error: ApiError };

export const session = signal<Session>({ state: "asking" });
export const me = computed(() => (session.value.state === "in" ? session.value.me : null));

const NOT_KEPT =
  "The token was accepted, but the browser did not send the session back. Are cookies allowed, and does the server know the path that a proxy gives it?";
const RANK: Record<Role, number> = { viewer: 0, operator: 1, developer: 2 };

/** Why somebody of this role may not act; null: they may. */
export function refusal(role: Role | undefined, needed: Role = "operator"): string | null {
  if (role !== undefined && RANK[role] >= RANK[needed]) return null;
  return `Needs the role ${needed}; yours is ${role ?? "unknown"}.`;
}

export const mayNot = computed(() => refusal(me.value?.role));

export async function ask(): Promise<void> {
  session.value = { state: "asking" };
  try {
    session.value = { state: "in", me: await api.getMe() };
  } catch (raised) {
    const error = asApiError(raised);
    session.value = error.status === 401 ? { state: "out", note: null } : { state: "failed", error };
  }
}

export async function login(token: string): Promise<void> {
  await api.signIn({ token });
  await ask();
  if (session.value.state === "out") session.value = { state: "out", note: NOT_KEPT };
}

export async function logout(): Promise<void> {
  try {
    await api.signOut();
  } catch (raised) {
    const error = asApiError(raised);
    if (error.status !== 401) {
      say(`You are still signed in: ${error.message}`, "bad");
      return;
    }
  }
  session.value = { state: "out", note: "You are signed out." };
}

export function startSession(): void {
  onUnauthorized(() => {
    if (session.value.state === "in")
      session.value = { state: "out", note: "Your session has ended. Sign in again." };
  });
  void ask();
}
