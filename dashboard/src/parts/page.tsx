import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { route } from "../route";

interface Props {
  title: string;
  /** Above the title: where this page belongs. */
  trail?: ComponentChildren;
  /** Beside the title. */
  aside?: ComponentChildren;
  note?: ComponentChildren;
  children: ComponentChildren;
}

let first = true;

/** A page: its title in the window and on the page, which gets the focus so that it is read out. */
export function Page({ title, trail, aside, note, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  const { database } = route.value;
  useEffect(() => {
    document.title = [title, database, "Holdfast"].filter(Boolean).join(" · ");
  }, [title, database]);
  // Before anybody sees the page, and goes on by keyboard: a focus that comes late is taken from them.
  useLayoutEffect(() => {
    if (!first) heading.current?.focus();
    first = false;
  }, []);
  return (
    <>
      <header class="page-head">
        <div>
          {trail && <p class="trail">{trail}</p>}
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {note && <p class="note">{note}</p>}
        </div>
        {aside && <div class="page-aside">{aside}</div>}
      </header>
      {children}
    </>
  );
}

interface PanelProps {
  title: string;
  note?: ComponentChildren;
  aside?: ComponentChildren;
  bare?: boolean;
  children: ComponentChildren;
}

/** A part of a page with a heading of its own. */
export function Panel({ title, note, aside, bare, children }: PanelProps) {
  return (
    <section class={bare ? "panel bare" : "panel"} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {note && <p class="note">{note}</p>}
        {aside && <div class="panel-aside">{aside}</div>}
      </header>
      {children}
    </section>
  );
}
