import { useMemo, useRef } from "preact/hooks";
import { draw, NODE_HEIGHT, NODE_WIDTH, neighbour, type Placed } from "../graph";
import type { ChainGraph } from "../openapi";
import { to } from "../route";
import { statusTone } from "./badge";
import { Icon } from "./icon";

// It shrinks to what there is room for, but stays legible; then it scrolls.
const SMALLEST = 0.85;

/** A chain as a graph; each job is a link, and the arrow keys go along the lines. */
export function Diagram({ graph }: { graph: ChainGraph }) {
  const drawing = useMemo(() => draw(graph.nodes, graph.edges), [graph]);
  const box = useRef<SVGSVGElement>(null);
  const move = (event: KeyboardEvent, id: string) => {
    const next = neighbour(drawing, id, event.key);
    if (next === null) return;
    event.preventDefault();
    box.current?.querySelector<SVGAElement>(`[data-node="${next}"]`)?.focus();
  };
  return (
    <div class="diagram">
      <svg
        ref={box}
        style={{ maxInlineSize: `${drawing.width}px`, minInlineSize: `${drawing.width * SMALLEST}px` }}
        viewBox={`0 0 ${drawing.width} ${drawing.height}`}
        aria-label="Graph of the chain's jobs"
      >
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0 8 4 0 8z" class="tip" />
          </marker>
        </defs>
        {drawing.lines.map(({ edge, path }) => (
          <path
            key={`${edge.source} ${edge.target} ${edge.kind}`}
            class={`edge ${edge.kind}`}
            d={path}
            marker-end="url(#tip)"
          />
        ))}
        {drawing.placed.map((place) => (
          <Node key={place.node.id} place={place} own={place.node.chain_id === graph.id} onMove={move} />
        ))}
      </svg>
      <ul class="diagram-key" aria-label="What the lines mean">
        <li class="next">continues as</li>
        <li class="blocks">must end before</li>
        <li class="replay">runs again as</li>
      </ul>
    </div>
  );
}

interface NodeProps {
  place: Placed;
  /** It is of the chain itself, not of one before or after it. */
  own: boolean;
  onMove: (event: KeyboardEvent, id: string) => void;
}

function Node({ place: { node, x, y }, own, onMove }: NodeProps) {
  const name = `${node.kind} #${node.id} ${node.error_code ?? ""} ${node.status}`.replace("  ", " ");
  const below = `#${node.id} ${node.error_code ?? node.status}`;
  return (
    <a
      class={`node tone-${statusTone(node.status)} ${own ? "own" : "other"}`}
      href={to(["jobs", node.id])}
      data-node={node.id}
      aria-label={name}
      onKeyDown={(event) => onMove(event, node.id)}
    >
      <title>{name}</title>
      <rect x={x} y={y} width={NODE_WIDTH} height={NODE_HEIGHT} rx={10} />
      <g transform={`translate(${x + 14} ${y + 19})`}>
        <Icon name={node.status} size={22} />
      </g>
      {/* Cut off where it is too long; its name has it all. */}
      <svg x={x + 46} y={y} width={NODE_WIDTH - 54} height={NODE_HEIGHT} aria-hidden="true">
        <text class="node-kind" y={26}>
          {node.kind}
        </text>
        <text class="node-id" y={44}>
          {below}
        </text>
      </svg>
    </a>
  );
}
