/** What this browser remembers. A browser that refuses to remember is no reason to fail. */
export function recall(name: string): string | null {
  try {
    return localStorage.getItem(`holdfast.${name}`);
  } catch {
    return null;
  }
}

export function remember(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`holdfast.${name}`);
    else localStorage.setItem(`holdfast.${name}`, value);
  } catch {
    // It is asked for anew next time.
  }
}
