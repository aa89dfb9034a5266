import { useState } from "preact/hooks";
import { api } from "../api";
import type { LimitLine } from "../openapi";
import { Confirm } from "./confirm";
import { Field } from "./field";
import { Time } from "./time";

interface Props {
  limit: LimitLine;
  onDone: () => void;
  onClose: () => void;
}

/** Set what a limit allows, whatever the code declares. */
export function EditLimit({ limit, onDone, onClose }: Props) {
  const [concurrency, setConcurrency] = useState(limit.concurrency === null ? "" : String(limit.concurrency));
  const [rate, setRate] = useState(limit.rate ?? "");
  const [burst, setBurst] = useState(String(limit.burst));
  const [etag] = useState(limit.etag);
  const act = () => {
    const control = {
      concurrency: concurrency.trim() === "" ? null : Number(concurrency),
      rate: rate.trim() || null,
      burst: Number(burst) || 1,
    };
    return api.setLimit(limit.name, control, undefined, etag);
  };
  return (
    <Confirm title={`Edit ${limit.name}`} verb="Save" icon="edit" act={act} onDone={onDone} onClose={onClose}>
      <p>
        In force is what{" "}
        {limit.set_by === null ? (
          "the code declares"
        ) : (
          <>
            {limit.set_by} set <Time at={limit.set_at} />
          </>
        )}
        . What you save holds from the next claim on, until it is reset. Running jobs go on.
      </p>
      <div class="fields column">
        <Field
          label="Jobs at once"
          type="number"
          min={0}
          max={1_000_000}
          step={1}
          value={concurrency}
          onInput={setConcurrency}
          hint="Empty: any number. 0: nothing more is started."
        />
        <Field label="Rate" value={rate} onInput={setRate} hint="Such as 10/s or 100/min. Empty: any rate." />
        <Field
          label="Starts at once after a pause"
          type="number"
          min={1}
          max={1_000_000}
          step={1}
          value={burst}
          onInput={setBurst}
          hint="Of a rate."
        />
      </div>
    </Confirm>
  );
}
