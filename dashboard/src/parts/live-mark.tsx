import { now } from "../clock";
import type { Beat, LiveOverview } from "../live";
import { relative } from "../time";
import { Button } from "./button";

const NAMES: Record<Beat, string> = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  paused: "Paused",
};

/** Whether what is shown is of now. */
export function LiveMark({ live }: { live: LiveOverview }) {
  const beat = live.beat.value;
  const at = live.overview.value?.at;
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
      <Button icon={paused ? "play" : "pause"} onClick={() => (paused ? void live.start() : live.pause())}>
        {paused ? "Go on" : "Pause"}
      </Button>
    </>
  );
}
