import { useEffect, useState } from "preact/hooks";
import { api } from "../api";
import { isEmpty, NAMES, STATUSES, TIMES, toQuery, type WORDS } from "../filter";
import type { JobFilter, Status } from "../openapi";
import { useResource } from "../resource";
import { go, to } from "../route";
import { fromField, toField } from "../time";
import { Button } from "./button";
import { Field } from "./field";
import { Icon } from "./icon";

const RARE = ["order_key", "tag", "unique_key", "error_code", ...TIMES] as const;

interface Props {
  filter: JobFilter;
  onChange: (filter: JobFilter) => void;
}

/** Every filter that jobs can be searched by. What is set stands in the address. */
export function Filters({ filter, onChange }: Props) {
  const [draft, setDraft] = useState(filter);
  const key = toQuery(filter).toString();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another search, another draft
  useEffect(() => setDraft(filter), [key]);
  const kinds = useResource("kinds", api.listKinds);
  const known = kinds.value?.items ?? [];
  const set = (change: JobFilter) => setDraft({ ...draft, ...change });
  const word = (field: (typeof WORDS)[number]) => ({
    label: NAMES[field],
    value: draft[field] ?? "",
    onInput: (value: string) => set({ [field]: value || null }),
  });
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        onChange(draft);
      }}
    >
      <Statuses value={filter.status ?? null} onChange={(status) => onChange({ ...draft, status })} />
      <div class="fields">
        <Field {...word("kind")} choices={unique(known.map((line) => line.kind))} mark="search" />
        <Field {...word("queue")} choices={unique(known.map((line) => line.queue))} />
        <Field {...word("text")} type="search" maxLength={200} />
        <div class="buttons fields-end">
          <Button type="submit" look="primary" icon="search">
            Search
          </Button>
          {!isEmpty(filter) && (
            <Button look="quiet" onClick={() => onChange({})}>
              Clear
            </Button>
          )}
        </div>
      </div>
      <details open={RARE.some((field) => filter[field])}>
        <summary>
          <Icon name="right" size={12} /> More filters
        </summary>
        <div class="fields">
          <Field {...word("order_key")} maxLength={500} />
          <Field {...word("tag")} maxLength={100} />
          <Field {...word("unique_key")} maxLength={500} />
          <Field {...word("error_code")} maxLength={200} />
          {TIMES.map((field) => (
            <Field
              key={field}
              label={NAMES[field]}
              type="datetime-local"
              value={toField(draft[field])}
              onInput={(value) => set({ [field]: fromField(value) })}
            />
          ))}
          <OpenById />
        </div>
      </details>
    </form>
  );
}

function Statuses({ value, onChange }: { value: Status | null; onChange: (status: Status | null) => void }) {
  return (
    <fieldset class="segments">
      <legend class="hidden">Status</legend>
      {[null, ...STATUSES].map((status) => (
        <label key={status ?? "any"}>
          <input type="radio" name="status" checked={value === status} onChange={() => onChange(status)} />
          <span>
            {status && <Icon name={status} size={14} />}
            {status ?? "any"}
          </span>
        </label>
      ))}
    </fieldset>
  );
}

function OpenById() {
  const [id, setId] = useState("");
  const open = () => /^[1-9][0-9]{0,18}$/.test(id) && go(to(["jobs", id]));
  return (
    <div class="field open-by-id">
      <Field
        label="Open job by id"
        value={id}
        onInput={(value) => setId(value.trim().replace(/^#/, ""))}
        onEnter={open}
      />
      <Button onClick={open}>Open</Button>
    </div>
  );
}

function unique(words: string[]): string[] {
  return [...new Set(words)].sort();
}
