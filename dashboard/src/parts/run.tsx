import { count } from "../number";
import type { RunLine } from "../openapi";
import { Badge } from "./badge";

/** How a run ended. */
export function Outcome({ run }: { run: RunLine }) {
  if (run.error_code || run.error)
    return (
      <Badge tone="bad" icon="failed">
        {run.outcome ?? "failed"}
      </Badge>
    );
  if (run.finished_at === null)
    return (
      <Badge tone="busy" icon="processing">
        running
      </Badge>
    );
  return (
    <Badge tone="ok" icon="completed">
      {run.outcome ?? "done"}
    </Badge>
  );
}

/** What a run did, or what went wrong. */
export function Counts({ run }: { run: RunLine | null }) {
  if (run === null) return <span class="muted">–</span>;
  if (run.error_code || run.error) {
    return (
      <span class="run-error">
        <code class="text-bad">{run.error_code}</code> {run.error}
      </span>
    );
  }
  const entries = Object.entries(run.counts).filter(([, value]) => value !== 0);
  if (entries.length === 0) return <span class="muted">nothing</span>;
  return (
    <ul class="counts">
      {entries.map(([name, value]) => (
        <li key={name}>
          {name.replaceAll("_", " ")} <b>{count(value)}</b>
        </li>
      ))}
    </ul>
  );
}
