import type { ComponentChildren } from "preact";

/** Names and values; what is null or undefined is left out. */
export function Facts({ of }: { of: [name: string, value: ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
