import { now } from "../clock";
import { absolute, relative } from "../time";

/** A moment: how long ago or how soon, and on hover when exactly. */
export function Time({ at, none = "–" }: { at: string | null; none?: string }) {
  if (at === null) return <span class="muted">{none}</span>;
  return (
    <time dateTime={at} title={`${absolute(at)} here, ${at} in UTC`}>
      {relative(at, now.value)}
    </time>
  );
}

/** A moment in full, with how long ago it was. */
export function Moment({ at }: { at: string }) {
  return (
    <time class="moment" dateTime={at} title={`${at} in UTC`}>
      {absolute(at)} <span class="muted">({relative(at, now.value)})</span>
    </time>
  );
}
