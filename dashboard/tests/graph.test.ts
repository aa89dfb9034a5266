import { describe, expect, it } from "vitest";
import { type Drawing, draw, NODE_HEIGHT, NODE_WIDTH, neighbour } from "../src/graph";
import type { ChainEdge, ChainNode } from "../src/openapi";

const node = (id: string): ChainNode => ({
  id,
  chain_id: "1",
  kind: "a.b",
  queue: "default",
  status: "completed",
  attempt: 1,
  created_at: "2026-07-03T12:00:00Z",
  finished_at: null,
  error_code: null,
  progress: null,
});
const edge = (source: string, target: string, kind: ChainEdge["kind"] = "next"): ChainEdge => ({
  source,
  target,
  kind,
});
const nodes = (...ids: string[]) => ids.map(node);
const at = (drawing: Drawing, id: string) => {
  const place = drawing.placed.find((one) => one.node.id === id);
  if (!place) throw new Error(`${id} is not drawn`);
  return place;
};

function overlapping(drawing: Drawing): boolean {
  return drawing.placed.some((a, index) =>
    drawing.placed
      .slice(index + 1)
      .some((b) => Math.abs(a.x - b.x) < NODE_WIDTH && Math.abs(a.y - b.y) < NODE_HEIGHT),
  );
}

describe("the drawing of a chain", () => {
  it("goes from left to right", () => {
    const drawing = draw(nodes("1", "2", "3"), [edge("1", "2"), edge("2", "3")]);
    expect(drawing.placed.map((place) => place.layer)).toEqual([0, 1, 2]);
    expect(at(drawing, "1").x).toBeLessThan(at(drawing, "2").x);
    expect(drawing.width).toBeGreaterThan(at(drawing, "3").x + NODE_WIDTH);
  });

  it("puts a job after the last of all that it comes from", () => {
    const drawing = draw(nodes("1", "2", "3", "4"), [
      edge("1", "2"),
      edge("2", "3"),
      edge("3", "4"),
      edge("1", "4", "blocks"),
    ]);
    expect(at(drawing, "4").layer).toBe(3);
  });

  it("lets nothing lie upon another", () => {
    const many = Array.from({ length: 40 }, (_, index) => String(index + 1));
    const edges = many.slice(1).map((id) => edge(String(Math.ceil(Number(id) / 3)), id));
    expect(overlapping(draw(nodes(...many), edges))).toBe(false);
  });

  it("crosses no lines where it need not", () => {
    const drawing = draw(nodes("1", "2", "3", "4"), [edge("1", "4"), edge("2", "3")]);
    expect(at(drawing, "1").row < at(drawing, "2").row).toBe(at(drawing, "4").row < at(drawing, "3").row);
  });

  it("comes to an end when edges lead in a circle, or to a job itself", () => {
    const drawing = draw(nodes("1", "2"), [edge("1", "2"), edge("2", "1"), edge("1", "1")]);
    expect(drawing.lines).toHaveLength(1);
  });

  it("leaves out edges to jobs that are not shown", () => {
    expect(draw(nodes("1"), [edge("1", "99")]).lines).toEqual([]);
  });

  it("of nothing is empty", () => {
    expect(draw([], []).placed).toEqual([]);
  });

  it("takes the most that a graph has", () => {
    const many = Array.from({ length: 200 }, (_, index) => String(index + 1));
    const edges = many.slice(1).map((id) => edge(String(Number(id) - 1), id));
    expect(draw(nodes(...many), edges).placed).toHaveLength(200);
  });
});

describe("an arrow key", () => {
  const drawing = draw(nodes("1", "2", "3"), [edge("1", "2"), edge("1", "3")]);

  it("leads along a line", () => {
    expect(neighbour(drawing, "1", "ArrowRight")).toBe("2");
    expect(neighbour(drawing, "3", "ArrowLeft")).toBe("1");
  });

  it("leads up and down within a layer", () => {
    expect(neighbour(drawing, "2", "ArrowDown")).toBe("3");
    expect(neighbour(drawing, "3", "ArrowUp")).toBe("2");
  });

  it("leads nowhere where there is nothing", () => {
    expect(neighbour(drawing, "1", "ArrowLeft")).toBeNull();
    expect(neighbour(drawing, "2", "ArrowUp")).toBeNull();
    expect(neighbour(drawing, "2", "Enter")).toBeNull();
    expect(neighbour(drawing, "99", "ArrowUp")).toBeNull();
  });
});
