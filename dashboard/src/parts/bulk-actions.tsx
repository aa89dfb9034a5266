import { useState } from "preact/hooks";
import { api } from "../api";
import { asApiError } from "../client";
import { count, many } from "../number";
import type { BulkAction } from "../openapi";
import { useResource } from "../resource";
import { Badge } from "./badge";
import { ActButton } from "./button";
import { VERBS } from "./job-action";
import { Refused } from "./preview";
import { Time } from "./time";
import { say } from "./toast";

const EVERY_MS = 2_000;

/** The bulk actions that are under way, and nothing if there is none. */
export function RunningBulkActions() {
  const found = useResource(
    "running bulk actions",
    (signal) => api.listBulkActions({ limit: 20 }, signal),
    EVERY_MS,
  );
  const open = found.value?.items.filter((action) => action.ended_at === null) ?? [];
  if (open.length === 0) return null;
  return (
    <section class="bulk-actions" aria-label="Bulk actions under way">
      <BulkActionList actions={open} onChange={found.reload} />
    </section>
  );
}

export function BulkActionList({ actions, onChange }: { actions: BulkAction[]; onChange: () => void }) {
  return (
    <ul class="letters">
      {actions.map((action) => (
        <Line key={action.id} action={action} onChange={onChange} />
      ))}
    </ul>
  );
}

function Line({ action, onChange }: { action: BulkAction; onChange: () => void }) {
  const [busy, setBusy] = useState(false);
  const control = async (what: "stop" | "resume") => {
    setBusy(true);
    try {
      const after = await api.actOnBulkAction(action.id, { action: what });
      say(`Bulk action ${action.id} is ${after.state}.`);
      onChange();
    } catch (raised) {
      say(asApiError(raised).message, "bad");
    } finally {
      setBusy(false);
    }
  };
  const { name, done } = VERBS[action.action];
  const title = `${name}: ${which(action)}`;
  const goes = action.state === "running";
  return (
    <li class="letter bulk-action" aria-label={title}>
      <div class="letter-text">
        <h2>
          {title} <State action={action} />
        </h2>
        <progress max={1} value={action.progress} aria-label={`Progress of ${title}`} />
        <p>
          {done} {many(action.done, "job")}
          {action.expected !== null && ` of ${count(action.expected)}`}
          {action.refused > 0 && `, ${count(action.refused)} refused`}
          {action.rate !== null && goes && `, at most ${count(action.rate)} a second`}.
        </p>
        <p class="muted">
          {action.who}, <Time at={action.created_at} />
          {action.stopped_by !== null && `; stopped by ${action.stopped_by}`}
          {action.ended_at !== null && (
            <>
              ; ended <Time at={action.ended_at} />
            </>
          )}
        </p>
        {action.refusals.length > 0 && (
          <Refused jobs={action.refusals} says={`${many(action.refused, "job was", "jobs were")} refused`} />
        )}
      </div>
      <div class="buttons">
        {goes && (
          <ActButton
            small
            icon="cancel"
            busy={busy}
            label={`Stop ${title}`}
            onClick={() => void control("stop")}
          >
            Stop
          </ActButton>
        )}
        {action.state === "stopped" && (
          <ActButton
            small
            icon="play"
            busy={busy}
            label={`Resume ${title}`}
            onClick={() => void control("resume")}
          >
            Resume
          </ActButton>
        )}
      </div>
    </li>
  );
}

function State({ action }: { action: BulkAction }) {
  if (action.state === "running") {
    return (
      <Badge tone="busy" icon="processing">
        under way
      </Badge>
    );
  }
  return action.state === "stopped" ? (
    <Badge tone="warn" icon="pause">
      stopped
    </Badge>
  ) : (
    <Badge tone="ok" icon="completed">
      completed
    </Badge>
  );
}

/** What its jobs have in common. */
function which(action: BulkAction): string {
  const { kind, queue, error_code, order_key, tag, unique_key } = action;
  const parts = [
    kind,
    queue !== null && `in ${queue}`,
    error_code !== null && `that failed with ${error_code}`,
    order_key !== null && `with the order key ${order_key}`,
    tag !== null && `with the tag ${tag}`,
    unique_key !== null && `with the unique key ${unique_key}`,
  ].filter(Boolean);
  return parts.join(" ") || `jobs that are ${action.statuses.join(" or ")}`;
}
