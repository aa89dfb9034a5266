import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icon";

interface Props {
  title: string;
  wide?: boolean;
  /** What stands below a line: the buttons. */
  foot?: ComponentChildren;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog: the browser keeps the focus in it, closes it with Escape, and gives the focus back. */
export function Dialog({ title, wide, foot, onClose, children }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Who selects text may let go of the mouse beside the dialog.
  const pressed = useRef<EventTarget | null>(null);
  useLayoutEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, a click beside it is for the mouse
    <dialog
      ref={ref}
      class={`dialog ${wide ? "wide" : ""}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => {
        pressed.current = event.target;
      }}
      onClick={(event) => {
        if (event.target === ref.current && pressed.current === ref.current) onClose();
      }}
    >
      <div class="dialog-box">
        <header>
          <h2 id={id}>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={onClose}>
            <Icon name="cancel" />
          </button>
        </header>
        <div class="dialog-body">{children}</div>
        {foot && <footer>{foot}</footer>}
      </div>
    </dialog>
  );
}
