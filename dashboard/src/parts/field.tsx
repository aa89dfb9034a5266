import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  /** Instead of sending the form. */
  onEnter?: () => void;
  type?: "text" | "search" | "number" | "password" | "datetime-local";
  choices?: string[];
  hint?: ComponentChildren;
  placeholder?: string;
  min?: number;
  max?: number;
  step?: number | "any";
  maxLength?: number;
  autoComplete?: string;
  required?: boolean;
  mark?: string;
}

/** A field with its label above, choices to pick from, and a hint below. */
export function Field({
  label,
  value,
  onInput,
  onEnter,
  type = "text",
  choices,
  hint,
  mark,
  ...rest
}: FieldProps) {
  const id = useId();
  // Which attributes go together depends on the type, and that is only known when it runs.
  const attributes = { type, ...rest, list: choices && `${id}-choices` } as JSX.IntrinsicElements["input"];
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        data-mark={mark}
        spellcheck={false}
        onInput={(event) => onInput(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !onEnter) return;
          event.preventDefault();
          onEnter();
        }}
        {...attributes}
      />
      {choices && (
        <datalist id={`${id}-choices`}>
          {choices.map((choice) => (
            <option key={choice} value={choice} />
          ))}
        </datalist>
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  options: [value: string, name: string][];
  onChange: (value: string) => void;
}

export function Choice({ label, value, options, onChange }: ChoiceProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([option, name]) => (
          <option key={option} value={option}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}
