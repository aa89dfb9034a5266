import type { ComponentChildren } from "preact";
import type { Status } from "../openapi";
import type { Tone } from "../story";
import { Icon, type IconName } from "./icon";

const TONES: Record<Status, Tone> = {
  blocked: "held",
  pending: "idle",
  processing: "busy",
  completed: "ok",
  failed: "bad",
  cancelled: "idle",
};

export function Badge({ tone, icon, children }: { tone: Tone; icon: IconName; children: ComponentChildren }) {
  return (
    <span class={`badge tone-${tone}`}>
      <Icon name={icon} size={14} />
      {children}
    </span>
  );
}

export function StatusBadge({ status }: { status: Status }) {
  return (
    <Badge tone={TONES[status]} icon={status}>
      {status}
    </Badge>
  );
}

export function statusTone(status: Status): Tone {
  return TONES[status];
}
