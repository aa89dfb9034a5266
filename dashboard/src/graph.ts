import type { ChainEdge, ChainNode } from "./openapi";

export const NODE_WIDTH = 216;
export const NODE_HEIGHT = 60;
const GAP_X = 60;
const GAP_Y = 22;
const MARGIN = 12;
const SWEEPS = 6;

export interface Placed {
  node: ChainNode;
  layer: number;
  /** Place within the layer, from the top. */
  row: number;
  x: number;
  y: number;
}

export interface Line {
  edge: ChainEdge;
  /** An SVG path. */
  path: string;
}

export interface Drawing {
  placed: Placed[];
  lines: Line[];
  width: number;
  height: number;
}

/** Draw a graph in layers from left to right: each job to the right of all it comes from. */
export function draw(nodes: ChainNode[], edges: ChainEdge[]): Drawing {
  const ids = new Set(nodes.map((node) => node.id));
  const known = forward(
    nodes,
    edges.filter((edge) => ids.has(edge.source) && ids.has(edge.target)),
  );
  const layers = ordered(layered(nodes, known), known);
  const tallest = Math.max(1, ...layers.map((layer) => layer.length));
  const placed = layers.flatMap((layer, column) =>
    layer.map((node, row) => ({
      node,
      layer: column,
      row,
      x: MARGIN + column * (NODE_WIDTH + GAP_X),
      y: MARGIN + (row + (tallest - layer.length) / 2) * (NODE_HEIGHT + GAP_Y),
    })),
  );
  const at = new Map(placed.map((place) => [place.node.id, place]));
  const lines = known.flatMap((edge) => {
    const from = at.get(edge.source);
    const until = at.get(edge.target);
    return from && until ? [{ edge, path: curve(from, until) }] : [];
  });
  return {
    placed,
    lines,
    width: 2 * MARGIN + layers.length * (NODE_WIDTH + GAP_X) - GAP_X,
    height: 2 * MARGIN + tallest * (NODE_HEIGHT + GAP_Y) - GAP_Y,
  };
}

/** The neighbour that an arrow key leads to. */
export function neighbour(drawing: Drawing, id: string, key: string): string | null {
  const here = drawing.placed.find((place) => place.node.id === id);
  if (!here) return null;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const row = here.row + (key === "ArrowUp" ? -1 : 1);
    return drawing.placed.find((place) => place.layer === here.layer && place.row === row)?.node.id ?? null;
  }
  const along = drawing.lines.map((line) => line.edge);
  if (key === "ArrowRight") return along.find((edge) => edge.source === id)?.target ?? null;
  if (key === "ArrowLeft") return along.find((edge) => edge.target === id)?.source ?? null;
  return null;
}

/** Leave out edges that would lead in a circle, and those from a job to itself. */
function forward(nodes: ChainNode[], edges: ChainEdge[]): ChainEdge[] {
  const targets = grouped(edges, (edge) => edge.source);
  const done = new Set<string>();
  const under = new Set<string>();
  const kept: ChainEdge[] = [];
  const visit = (id: string) => {
    under.add(id);
    for (const edge of targets.get(id) ?? []) {
      if (under.has(edge.target)) continue;
      kept.push(edge);
      if (!done.has(edge.target)) visit(edge.target);
    }
    under.delete(id);
    done.add(id);
  };
  for (const node of nodes) if (!done.has(node.id)) visit(node.id);
  return kept;
}

/** Each job one layer after the last of those it comes from. */
function layered(nodes: ChainNode[], edges: ChainEdge[]): ChainNode[][] {
  const sources = grouped(edges, (edge) => edge.target);
  const layers = new Map<string, number>();
  const layerOf = (id: string): number => {
    const known = layers.get(id);
    if (known !== undefined) return known;
    const layer = Math.max(0, ...(sources.get(id) ?? []).map((edge) => layerOf(edge.source) + 1));
    layers.set(id, layer);
    return layer;
  };
  const result: ChainNode[][] = [];
  for (const node of nodes) {
    const layer = layerOf(node.id);
    while (result.length <= layer) result.push([]);
    result[layer]?.push(node);
  }
  return result;
}

/** Fewer crossings: each layer in the order of the middle of its neighbours, to and fro. */
function ordered(layers: ChainNode[][], edges: ChainEdge[]): ChainNode[][] {
  const sources = grouped(edges, (edge) => edge.target);
  const targets = grouped(edges, (edge) => edge.source);
  let result = layers;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const rows = new Map(result.flatMap((layer) => layer.map((node, row) => [node.id, row] as const)));
    const back = sweep % 2 === 1;
    result = result.map((layer) => {
      const weight = new Map(
        layer.map((node, row) => {
          const near = back
            ? (targets.get(node.id) ?? []).map((edge) => rows.get(edge.target) ?? row)
            : (sources.get(node.id) ?? []).map((edge) => rows.get(edge.source) ?? row);
          return [node.id, near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : row];
        }),
      );
      const sorted = [...layer].sort((a, b) => (weight.get(a.id) ?? 0) - (weight.get(b.id) ?? 0));
      for (const [row, node] of sorted.entries()) rows.set(node.id, row);
      return sorted;
    });
  }
  return result;
}

function curve(from: Placed, until: Placed): string {
  const x = from.x + NODE_WIDTH;
  const y = from.y + NODE_HEIGHT / 2;
  const toX = until.x;
  const toY = until.y + NODE_HEIGHT / 2;
  const bend = Math.max(GAP_X / 2, (toX - x) / 2);
  return `M${x} ${y}C${x + bend} ${y} ${toX - bend} ${toY} ${toX} ${toY}`;
}

function grouped<T>(values: T[], key: (value: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const value of values) {
    const group = groups.get(key(value));
    if (group) group.push(value);
    else groups.set(key(value), [value]);
  }
  return groups;
}
