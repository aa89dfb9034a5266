import { useState } from "preact/hooks";
import { api } from "../api";
import { many } from "../number";
import type { Done, JobActionResult, QueueLine } from "../openapi";
import { useResource } from "../resource";
import { Confirm } from "./confirm";
import { Field } from "./field";
import { outcome } from "./job-action";
import { Preview } from "./preview";
import { Bones, Loaded } from "./state";

interface EditProps {
  queue: QueueLine;
  onDone: () => void;
  onClose: () => void;
}

const OWN = "each worker's own setting";

/** Where the value in force comes from. */
function origin(value: number | null, otherwise: string): string {
  return value === null ? `In force: ${otherwise}.` : `Set for this queue. Empty: ${otherwise}.`;
}

/** Set what a queue runs by; workers take it over with their next heartbeat. */
export function EditQueue({ queue, onDone, onClose }: EditProps) {
  const [concurrency, setConcurrency] = useState(text(queue.concurrency));
  const [lease, setLease] = useState(text(queue.lease_ms === null ? null : queue.lease_ms / 1000));
  const [rate, setRate] = useState(text(queue.rate));
  const [etag] = useState(queue.etag);
  const act = () => {
    const control = {
      concurrency: number(concurrency),
      lease_ms: scaled(number(lease), 1000),
      rate: number(rate),
    };
    return api.setQueue(queue.name, control, undefined, etag);
  };
  return (
    <Confirm title={`Edit ${queue.name}`} verb="Save" icon="edit" act={act} onDone={onDone} onClose={onClose}>
      <p>Workers take it over with their next heartbeat.</p>
      <div class="fields column">
        <Field
          label="Concurrency of each worker"
          type="number"
          min={0}
          max={100_000}
          step={1}
          value={concurrency}
          onInput={setConcurrency}
          hint={`${origin(queue.concurrency, OWN)} 0: nothing more is started.`}
        />
        <Field
          label="Lease in seconds"
          type="number"
          min={1}
          max={86_400}
          step="any"
          value={lease}
          onInput={setLease}
          hint={origin(queue.lease_ms, OWN)}
        />
        <Field
          label="Per second and worker"
          type="number"
          min={0.001}
          max={1_000_000}
          step="any"
          value={rate}
          onInput={setRate}
          hint={origin(queue.rate, "no limit")}
        />
      </div>
    </Confirm>
  );
}

interface CancelProps {
  queue: string;
  onDone: () => void;
  onClose: () => void;
}

/** Cancel what waits in a queue, after it was shown what that is. */
export function CancelWaiting({ queue, onDone, onClose }: CancelProps) {
  const preview = useResource(`cancel waiting ${queue}`, async (signal) => {
    const answer = await api.actOnQueue(queue, { action: "cancel_waiting", preview: true }, signal);
    return isResult(answer) ? answer : null;
  });
  const matched = preview.value?.matched ?? 0;
  const act = async () => {
    const answer = await api.actOnQueue(queue, { action: "cancel_waiting", preview: false });
    if (!isResult(answer)) return answer;
    return { message: outcome("Cancelled", answer) };
  };
  return (
    <Confirm
      title={`Cancel waiting jobs of ${queue}`}
      verb={preview.value && !preview.value.capped ? `Cancel ${many(matched, "job")}` : "Cancel them"}
      icon="cancel"
      danger
      why={
        preview.value === null ? "It is not known yet what waits." : matched === 0 ? "Nothing waits." : null
      }
      act={act}
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        Waiting jobs of the queue are cancelled; running jobs go on. Pause the queue first, or more jobs may
        arrive.
      </p>
      <Loaded of={preview} skeleton={<Bones rows={5} />}>
        {(result) => result && <Preview result={result} verb="cancel" />}
      </Loaded>
    </Confirm>
  );
}

function isResult(answer: Done | JobActionResult): answer is JobActionResult {
  return "matched" in answer;
}

function text(value: number | null): string {
  return value === null ? "" : String(value);
}

function number(value: string): number | null {
  return value.trim() === "" ? null : Number(value);
}

function scaled(value: number | null, by: number): number | null {
  return value === null ? null : Math.round(value * by);
}
