const MOST = 8;

/** What an action was told to do, as names and words: what lies within another is laid out, long lists are cut. */
export function flat(detail: Record<string, unknown>): [name: string, value: string][] {
  return Object.entries(detail).flatMap(([name, value]): [string, string][] => {
    if (value === null || value === undefined) return [];
    if (Array.isArray(value)) return [[name, list(value)]];
    if (typeof value === "object") return flat(value as Record<string, unknown>);
    return [[name, String(value)]];
  });
}

function list(values: unknown[]): string {
  const shown = values
    .slice(0, MOST)
    .map((value) => (typeof value === "object" ? JSON.stringify(value) : String(value)));
  return values.length > MOST ? `${shown.join(", ")} and ${values.length - MOST} more` : shown.join(", ");
}
