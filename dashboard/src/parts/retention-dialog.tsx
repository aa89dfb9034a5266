import { useState } from "preact/hooks";
import { api } from "../api";
import { SOURCES } from "../exports";
import { many } from "../number";
import type { RetentionChange, RetentionLine } from "../openapi";
import { Confirm } from "./confirm";
import { Field } from "./field";
import { Icon } from "./icon";

const LEAST = 2;
const MOST = 36_500;

interface Props {
  kept: RetentionLine;
  onDone: () => void;
  onClose: () => void;
}

/** Set how long ended rows stay in the database; fewer days drop what is older. */
export function RetentionDialog({ kept, onDone, onClose }: Props) {
  const [text, setText] = useState(String(kept.days));
  const days = Number(text);
  const valid = Number.isInteger(days) && days >= LEAST && days <= MOST;
  const fewer = valid && days < kept.days;
  const why = valid
    ? days === kept.days
      ? `They are kept for ${many(days, "day")} already.`
      : null
    : `Give a whole number of days, ${LEAST} to ${MOST.toLocaleString("en")}.`;
  const [etag] = useState(kept.etag);
  return (
    <Confirm
      title={`Retention of ${kept.family}`}
      verb={valid ? `Keep ${many(days, "day")}` : "Keep"}
      icon="edit"
      danger={fewer}
      why={why}
      act={() =>
        api.setRetention({ family: kept.family as RetentionChange["family"], days }, undefined, etag)
      }
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        How long {SOURCES[kept.family] ?? kept.family} stay in the database after they have ended.
        {kept.family.startsWith("job_") && " Attempts stay as long as their jobs."}
        {kept.family === "event" && " Deliveries stay at least as long as their events."}
      </p>
      <Field
        label="Days"
        type="number"
        min={LEAST}
        max={MOST}
        step={1}
        required
        value={text}
        onInput={setText}
        hint={`Now ${many(kept.days, "day")}.`}
      />
      {fewer && (
        <div class={`problem ${kept.archived ? "tone-warn" : "tone-bad"}`} role="status">
          <Icon name="warning" />
          <p>
            {kept.archived
              ? `Days that are older than ${many(days, "day")} are dropped from the database once they are verified in the archive.`
              : `Days that are older than ${many(days, "day")} are deleted for good: they are not archived.`}
          </p>
        </div>
      )}
    </Confirm>
  );
}
