import { useState } from "preact/hooks";
import { api } from "../api";
import type { RunnerLine } from "../openapi";
import { scheduleText, type Times, timesOf } from "../schedule";
import { Confirm } from "./confirm";
import { Field } from "./field";
import { Json } from "./json";

interface Props {
  runner: RunnerLine;
  onDone: () => void;
  onClose: () => void;
}

const ZONES = Intl.supportedValuesOf("timeZone");

/** Set the times of a schedule, whatever the code declares. */
export function EditSchedule({ runner, onDone, onClose }: Props) {
  const [times, setTimes] = useState(() => timesOf(runner.schedule ?? ""));
  const [etag] = useState(runner.etag);
  const set = (change: Partial<Times>) => setTimes({ ...times, ...change });
  const schedule = scheduleText(times);
  return (
    <Confirm
      title={`Edit ${runner.name}`}
      verb="Save"
      icon="edit"
      why={schedule === null ? "Fill in the times." : null}
      act={() => api.actOnRunner(runner.name, { action: "edit", schedule }, undefined, etag)}
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        {runner.added
          ? "It holds from its next slot on."
          : "It holds from its next slot on, and until the code declares other times."}
      </p>
      <fieldset class="segments">
        <legend class="hidden">When it runs</legend>
        {(["interval", "cron"] as const).map((by) => (
          <label key={by}>
            <input type="radio" name="by" checked={times.by === by} onChange={() => set({ by })} />
            <span>{by === "cron" ? "by cron" : "by interval"}</span>
          </label>
        ))}
      </fieldset>
      <div class="fields column">
        {times.by === "interval" ? (
          <Field
            label="Seconds between two runs"
            type="number"
            min={0.001}
            max={31_622_400}
            step="any"
            value={times.seconds}
            onInput={(seconds) => set({ seconds })}
          />
        ) : (
          <>
            <Field
              label="Minute, hour, day, month, weekday"
              placeholder="30 2 * * 1-5"
              maxLength={200}
              value={times.line}
              onInput={(line) => set({ line })}
            />
            <Field label="Time zone" choices={ZONES} value={times.zone} onInput={(zone) => set({ zone })} />
          </>
        )}
      </div>
      {runner.kind !== null && <Enqueued runner={runner} />}
    </Confirm>
  );
}

function Enqueued({ runner: { kind, payload } }: { runner: RunnerLine }) {
  return (
    <>
      <p>
        It enqueues <code>{kind}</code>
        {payload === null ? "." : " with this payload, which only code changes:"}
      </p>
      {payload !== null && <Json value={payload} what="payload" />}
    </>
  );
}

/** Delete a schedule that was added at run time. */
export function RemoveSchedule({ runner, onDone, onClose }: Props) {
  const [etag] = useState(runner.etag);
  return (
    <Confirm
      title={`Remove ${runner.name}`}
      verb="Remove"
      icon="remove"
      danger
      act={() => api.actOnRunner(runner.name, { action: "remove" }, undefined, etag)}
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        No more jobs are enqueued for <code>{runner.schedule}</code>. Those that are there already still run.
      </p>
      {runner.kind !== null && <Enqueued runner={runner} />}
    </Confirm>
  );
}
