import { now } from "../clock";
import type { Beat, Pulse } from "../pulse";
import { relative } from "../time";
import { Button } from "./button";

const NAMES: Record<Beat, string> = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  paused: "Paused",
};

/** Whether what is shown is of now. */
export function LiveMark({ pulse }: { pulse: Pulse }) {
  const beat = pulse.beat.value;
  const at = pulse.overview.value?.at;
  const paused = beat === "paused";
  return (
    <>
      <p class="live" data-beat={beat}>
        <span class="live-dot" aria-hidden="true" />
        <b role="status" aria-label={`The overview is ${NAMES[beat].toLowerCase()}`}>
          {NAMES[beat]}
        </b>
        {at && beat !== "live" && <span class="muted">as of {relative(at, now.value)}</span>}
      </p>
      <Button icon={paused ? "play" : "pause"} onClick={() => (paused ? void pulse.start() : pulse.pause())}>
        {paused ? "Go on" : "Pause"}
      </Button>
    </>
  );
}
