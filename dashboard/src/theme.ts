import { signal } from "@preact/signals";
import { recall, remember } from "./memory";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

export const theme = signal<Theme>(read());
/** Counts changes of what is drawn, so that canvases can follow. */
export const repaint = signal(0);

export function setTheme(chosen: Theme): void {
  theme.value = chosen;
  remember("theme", chosen === "system" ? null : chosen);
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  repaint.value += 1;
}

export function nextTheme(): void {
  setTheme(THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? "system");
}

export function startTheme(): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    repaint.value += 1;
  });
}

/** What a custom property looks like in the present theme, for those that cannot read it: canvases. */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function read(): Theme {
  const remembered = recall("theme");
  return remembered === "light" || remembered === "dark" ? remembered : "system";
}
