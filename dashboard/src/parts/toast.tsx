import { signal } from "@preact/signals";
import { Icon, type IconName } from "./icon";

type Mood = "ok" | "warn" | "bad";

interface Toast {
  id: number;
  text: string;
  mood: Mood;
}

const SHOWN_MS = 6000;
const MOST = 3;
const ICONS: Record<Mood, IconName> = { ok: "completed", warn: "info", bad: "warning" };

const toasts = signal<Toast[]>([]);
let last = 0;

/** Say what came of something: shown for a while, and read out. What went wrong stays until it is closed. */
export function say(text: string, mood: Mood = "ok"): void {
  last += 1;
  const id = last;
  toasts.value = [...toasts.value.filter((toast) => toast.text !== text), { id, text, mood }].slice(-MOST);
  if (mood !== "bad") setTimeout(() => close(id), SHOWN_MS);
}

function close(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <section class="toasts" aria-label="Messages" aria-live="polite">
      {toasts.value.map((toast) => (
        <div
          key={toast.id}
          class={`toast tone-${toast.mood}`}
          role={toast.mood === "bad" ? "alert" : "status"}
        >
          <Icon name={ICONS[toast.mood]} />
          <p>{toast.text}</p>
          <button
            type="button"
            class="icon-button"
            aria-label="Close message"
            onClick={() => close(toast.id)}
          >
            <Icon name="cancel" />
          </button>
        </div>
      ))}
    </section>
  );
}
