import type { ComponentChildren } from "preact";

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers stand at the end. */
  end?: boolean;
  /** The name is not shown, only said. */
  mute?: boolean;
  /** Takes what is left, and breaks. */
  wide?: boolean;
  /** Names the row: a card's heading on a phone. */
  head?: boolean;
  /** Left out on a phone. */
  spare?: boolean;
}

export interface Selection {
  chosen: ReadonlySet<string>;
  toggle: (id: string, on: boolean, range: boolean) => void;
  all: (on: boolean) => void;
}

interface Props<T> {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string;
  /** What a row is called where it is chosen. */
  named?: (row: T) => string;
  selection?: Selection;
  tone?: (row: T) => string | undefined;
}

/** A table; on a phone each row is a card. */
export function Table<T>({ caption, columns, rows, id, named, selection, tone }: Props<T>) {
  const all = rows.length > 0 && rows.every((row) => selection?.chosen.has(id(row)));
  return (
    <div class="table-box">
      <table class={selection ? "table choosing" : "table"}>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {selection && (
              <th class="choose" scope="col">
                <Check label="Choose all shown" checked={all} onChange={(on) => selection.all(on)} />
              </th>
            )}
            {columns.map((column) => (
              <th key={column.name} scope="col" class={classes(column)}>
                <span class={column.mute ? "hidden" : undefined}>{column.name}</span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} class={tone?.(row)} aria-selected={selection?.chosen.has(id(row))}>
              {selection && (
                <td class="choose">
                  <Check
                    label={`Choose ${named?.(row) ?? id(row)}`}
                    checked={selection.chosen.has(id(row))}
                    onChange={(on, range) => selection.toggle(id(row), on, range)}
                  />
                </td>
              )}
              {columns.map((column) => (
                <td
                  key={column.name}
                  class={classes(column)}
                  data-label={column.mute ? undefined : column.name}
                >
                  <div class="cell">{column.cell(row)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface CheckProps {
  label: string;
  checked: boolean;
  onChange: (on: boolean, range: boolean) => void;
}

function Check({ label, checked, onChange }: CheckProps) {
  return (
    <input
      type="checkbox"
      aria-label={label}
      checked={checked}
      onClick={(event) => onChange(event.currentTarget.checked, event.shiftKey)}
    />
  );
}

function classes<T>(column: Column<T>): string | undefined {
  const { end, wide, head, mute, spare } = column;
  const names = [end && "end", wide && "wide", head && "head", mute && "mute", spare && "spare"];
  return names.filter(Boolean).join(" ") || undefined;
}
