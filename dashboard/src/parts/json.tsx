import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { writeExactly } from "../exact";
import { Button } from "./button";
import { Copy } from "./copy";
import { Icon } from "./icon";

const HIDDEN = "[redacted]";
const FOLDED_LINES = 60;

/** A value as JSON, coloured, with a mark where something was left out. */
export function Json({ value, what }: { value: unknown; what: string }) {
  const [open, setOpen] = useState(false);
  const text = writeExactly(value);
  const lines = text.split("\n");
  const shown = open ? lines : lines.slice(0, FOLDED_LINES);
  return (
    <div class="json">
      <Copy text={text} what={what} />
      <pre>
        <code>{coloured(shown.join("\n"))}</code>
      </pre>
      {lines.length > FOLDED_LINES && (
        <Button small onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all ${lines.length} lines`}
        </Button>
      )}
    </div>
  );
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

function coloured(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let from = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [all, string, colon] = match;
    parts.push(text.slice(from, match.index), token(all, string, colon));
    from = match.index + all.length;
  }
  return [...parts, text.slice(from)];
}

function token(all: string, string: string | undefined, colon: string | undefined): ComponentChildren {
  if (string === undefined) return <span class="json-word">{all}</span>;
  if (colon !== undefined) {
    return (
      <>
        <span class="json-name">{string}</span>
        {colon}
      </>
    );
  }
  if (string.slice(1, -1) === HIDDEN) {
    return (
      <span class="redacted">
        <Icon name="blocked" size={12} />
        redacted
      </span>
    );
  }
  return <span class="json-string">{string}</span>;
}
