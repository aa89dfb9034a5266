import { Icon } from "./icon";
import { say } from "./toast";

export function Copy({ text, what }: { text: string; what: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say(`${what} copied.`);
    } catch {
      say(`The browser did not let us copy: ${text.slice(0, 200)}`, "warn");
    }
  };
  return (
    <button
      type="button"
      class="icon-button"
      aria-label={`Copy ${what.toLowerCase()}`}
      onClick={() => void copy()}
    >
      <Icon name="copy" />
    </button>
  );
}
