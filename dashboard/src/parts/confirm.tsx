import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { asApiError } from "../client";
import { Button } from "./button";
import { Dialog } from "./dialog";
import type { IconName } from "./icon";
import { Problem } from "./state";
import { say } from "./toast";

interface Props {
  title: string;
  verb: string;
  icon?: IconName;
  danger?: boolean;
  why?: string | null;
  children: ComponentChildren;
  /** Does it, and tells what was done. */
  act: () => Promise<{ message: string }>;
  onDone: () => void;
  onClose: () => void;
}

/** Ask before something is done, do it, and say what came of it. */
export function Confirm({ title, verb, icon, danger, why = null, children, act, onDone, onClose }: Props) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const go = async () => {
    setBusy(true);
    setError(null);
    try {
      say((await act()).message);
      onDone();
      onClose();
    } catch (raised) {
      setError(asApiError(raised).message);
    } finally {
      setBusy(false);
    }
  };
  const foot = (
    <>
      <Button onClick={onClose}>Back</Button>
      <Button
        look={danger ? "danger" : "primary"}
        type="submit"
        busy={busy}
        why={why}
        {...(icon && { icon })}
      >
        {verb}
      </Button>
    </>
  );
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void go();
        }}
      >
        {children}
        {error && <Problem text={error} />}
        <div class="buttons end">{foot}</div>
      </form>
    </Dialog>
  );
}
