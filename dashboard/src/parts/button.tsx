import type { ComponentChildren } from "preact";
import { mayNot } from "../session";
import { Icon, type IconName } from "./icon";
import { say } from "./toast";

interface Props {
  children: ComponentChildren;
  icon?: IconName;
  look?: "plain" | "primary" | "danger" | "quiet";
  type?: "button" | "submit";
  /** Said to those who do not see what the button is beside. */
  label?: string;
  /** Why it cannot be pressed; it stays reachable by keyboard, so that the reason is too. */
  why?: string | null;
  busy?: boolean;
  small?: boolean;
  onClick?: () => void;
}

export function Button({
  children,
  icon,
  look = "plain",
  type = "button",
  label,
  why = null,
  busy,
  small,
  onClick,
}: Props) {
  const off = why !== null || busy === true;
  const press = (event: MouseEvent) => {
    // The second click of two was meant for what was there before the first.
    const again = event.detail > 1;
    if (off || again) event.preventDefault();
    if (again) return;
    if (why !== null) say(why, "warn");
    else if (!busy) onClick?.();
  };
  const hold = (event: KeyboardEvent) => {
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
  };
  return (
    <button
      type={type}
      class={`button ${look} ${small ? "small" : ""}`}
      aria-label={label}
      aria-disabled={off}
      aria-busy={busy}
      data-why={why}
      title={why ?? undefined}
      onClick={press}
      onKeyDown={hold}
    >
      {icon && <Icon name={icon} />}
      <span>{children}</span>
    </button>
  );
}

/** A button that changes something: only for those who may. */
export function ActButton({ why = null, ...props }: Props) {
  return <Button {...props} why={mayNot.value ?? why} />;
}
