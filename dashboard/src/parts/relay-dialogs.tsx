import { useState } from "preact/hooks";
import { api } from "../api";
import { serverNow } from "../clock";
import { fromField, toField } from "../time";
import { Confirm } from "./confirm";
import { Field } from "./field";

interface Props {
  name: string;
  onDone: () => void;
  onClose: () => void;
}

const HOUR_MS = 3_600_000;

/** Hand over again what was published before: since a time, or after an event. */
export function ReplayDialog({ name, onDone, onClose }: Props) {
  const [by, setBy] = useState<"since" | "after">("since");
  const [since, setSince] = useState<string | null>(() => new Date(serverNow() - HOUR_MS).toISOString());
  const [after, setAfter] = useState("");
  const why =
    by === "since"
      ? since
        ? null
        : "Say since when."
      : /^[1-9][0-9]{0,18}$/.test(after)
        ? null
        : "Give the id of an event.";
  const act = () =>
    api.actOnSubscription(name, { action: "replay", ...(by === "since" ? { since } : { after }) });
  return (
    <Confirm
      title={`Replay ${name}`}
      verb="Replay"
      icon="replay"
      why={why}
      act={act}
      onDone={onDone}
      onClose={onClose}
    >
      <p>Events that were published before are delivered again, so receivers see them more than once.</p>
      <fieldset class="segments">
        <legend class="hidden">From where</legend>
        {(["since", "after"] as const).map((one) => (
          <label key={one}>
            <input type="radio" name="by" checked={by === one} onChange={() => setBy(one)} />
            <span>{one === "since" ? "since a time" : "after an event"}</span>
          </label>
        ))}
      </fieldset>
      {by === "since" ? (
        <Field
          label="Since"
          type="datetime-local"
          value={toField(since)}
          onInput={(value) => setSince(fromField(value))}
        />
      ) : (
        <Field label="Event id" value={after} onInput={(value) => setAfter(value.trim())} />
      )}
    </Confirm>
  );
}

export function SkipDialog({ name, onDone, onClose }: Props) {
  const act = () => api.actOnSubscription(name, { action: "skip" });
  return (
    <Confirm
      title={`Skip ${name}`}
      verb="Skip all until now"
      icon="skip"
      danger
      act={act}
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        Everything that has been published until now is passed and never handed over, unless it is replayed.
      </p>
    </Confirm>
  );
}

/** Try parked events again, those of one key or all. */
export function ReleaseDialog({ name, of, onDone, onClose }: Props & { of: string | null }) {
  const act = () => api.actOnSubscription(name, { action: "release", ...(of !== null && { key: of }) });
  return (
    <Confirm
      title={of === null ? "Release all" : `Release ${of}`}
      verb="Release"
      icon="release"
      act={act}
      onDone={onDone}
      onClose={onClose}
    >
      <p>
        {of === null ? "Everything that is parked" : "The parked events of this key"} is tried again, in
        order.
      </p>
    </Confirm>
  );
}
