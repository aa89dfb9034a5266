import { serverNow } from "../clock";
import { fromField, toField } from "../time";
import { Button } from "./button";
import { Field } from "./field";

const SOON: [name: string, minutes: number][] = [
  ["Now", 0],
  ["In 15 min", 15],
  ["In 1 h", 60],
  ["In 24 h", 24 * 60],
];

/** Choose a moment: some near ones by a button, any by a field. */
export function When({ at, onChange }: { at: string | null; onChange: (at: string | null) => void }) {
  return (
    <div class="when">
      <Field
        label="Run at"
        type="datetime-local"
        value={toField(at)}
        onInput={(value) => onChange(fromField(value))}
      />
      <div class="buttons">
        {SOON.map(([name, minutes]) => (
          <Button
            key={name}
            small
            onClick={() => onChange(new Date(serverNow() + minutes * 60_000).toISOString())}
          >
            {name}
          </Button>
        ))}
      </div>
    </div>
  );
}
