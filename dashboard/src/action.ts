import { useState } from "preact/hooks";
import { asApiError } from "./client";
import { say } from "./parts/toast";

/** Do something that needs no question first, and say what came of it; `busy` names what is being done. */
export function useAction(after: () => void) {
  const [busy, setBusy] = useState<string | null>(null);
  const run = async (name: string, act: () => Promise<unknown>) => {
    if (busy !== null) return;
    setBusy(name);
    try {
      say(message(await act()));
      after();
    } catch (raised) {
      say(asApiError(raised).message, "bad");
    } finally {
      setBusy(null);
    }
  };
  return { busy, run: (name: string, act: () => Promise<unknown>) => void run(name, act) };
}

function message(answer: unknown): string {
  const said = typeof answer === "object" && answer !== null && "message" in answer ? answer.message : null;
  return typeof said === "string" ? said : "Done.";
}
