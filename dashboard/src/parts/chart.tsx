import "uplot/dist/uPlot.min.css";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Columns } from "../series";
import { repaint } from "../theme";
import { clock, HEIGHT, type Line, type Mark, plot, told, type Unit } from "./plot";

interface Props {
  title: string;
  note: string;
  columns: Columns;
  lines: Line[];
  unit: Unit;
  /** The last moment is still going on: unless another is pointed at, the one before is told. */
  going?: boolean;
  /** What stands in when there is nothing to draw. */
  none: string;
  marks?: Mark[];
}

const NONE: Mark[] = [];

/** A chart whose moments can be gone through by pointer or by arrow keys. */
export function Chart({ title, note, columns, lines, unit, going = false, none, marks = NONE }: Props) {
  const marked = useRef(marks);
  marked.current = marks;
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null);
  const painted = repaint.value;
  const empty = columns.slice(1).every((column) => column.every((value) => value === null || value === 0));
  const times = columns[0];
  const last = times.length - 1;
  const shown = index !== null && index <= last ? index : Math.max(going ? last - 1 : last, 0);

  // biome-ignore lint/correctness/useExhaustiveDependencies: made anew for another theme; new data is set below
  useLayoutEffect(() => {
    const into = box.current;
    if (!into) return;
    const made = plot(into, columns, lines, unit, setIndex, () => marked.current);
    chart.current = made;
    const watch = new ResizeObserver(() =>
      made.setSize({ width: Math.max(into.clientWidth, 120), height: HEIGHT }),
    );
    watch.observe(into);
    return () => {
      watch.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [painted]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: other marks are drawn with the same columns
  useLayoutEffect(() => chart.current?.setData(columns), [columns, marks]);

  const move = (event: KeyboardEvent) => {
    const next = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: last }[event.key];
    if (next === undefined || !chart.current || last < 0) return;
    event.preventDefault();
    const at = Math.min(Math.max(next, 0), last);
    chart.current.setCursor({ left: chart.current.valToPos(times[at] ?? 0, "x"), top: 0 });
    setIndex(at);
  };

  const values = lines.map((line, place) => ({ line, text: told(columns[place + 1]?.[shown], unit) }));
  const at = clock(times[shown]);
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <p class="note">{index === null || at === "" ? note : at}</p>
        <ul>
          {values.map(({ line, text }) => (
            <li key={line.name} data-colour={line.colour} data-draw={line.dash ? "dash" : line.draw}>
              {line.name} <b>{text}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div
        ref={box}
        class={empty ? "plot empty" : "plot"}
        role="slider"
        tabIndex={0}
        aria-label={`${title}, ${note}`}
        aria-valuemin={0}
        aria-valuemax={Math.max(last, 0)}
        aria-valuenow={Math.max(shown, 0)}
        aria-valuetext={
          empty ? none : `${at}: ${values.map(({ line, text }) => `${line.name} ${text}`).join(", ")}`
        }
        onKeyDown={move}
        onBlur={() => setIndex(null)}
      >
        {empty && (
          <p class="plot-none">
            <span>{none}</span>
          </p>
        )}
      </div>
    </figure>
  );
}
