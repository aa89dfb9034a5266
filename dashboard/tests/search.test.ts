import { describe, expect, it } from "vitest";
import { ApiError } from "../src/client";
import { type Page, Search } from "../src/search";

type Line = { id: string };
const page = (ids: string[], next: string | null, jobs = 100, complete = next === null): Page<Line> => ({
  lines: ids.map((id) => ({ id })),
  next,
  looked: { jobs, back_to: `2026-07-03T12:00:${String(60 - jobs / 10).padStart(2, "0")}Z`, complete },
});

/** Answers one page after another, and keeps what it was asked. */
function pages(...answers: (Page<Line> | Error)[]) {
  const asked: (string | null)[] = [];
  const search = new Search<Line>((before) => {
    asked.push(before);
    const answer = answers.shift();
    if (answer === undefined) throw new Error("asked too often");
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer);
  });
  return { search, asked };
}

describe("a search", () => {
  it("shows the first page, and then waits to be asked", async () => {
    const { search, asked } = pages(page(["9", "8"], "8"), page(["7"], null));
    await search.look();
    expect(asked).toEqual([null]);
    expect(search.found.value).toMatchObject({ looked: 100, more: true, complete: false, looking: false });
    await search.look();
    expect(asked).toEqual([null, "8"]);
    expect(search.found.value.lines.map((line) => line.id)).toEqual(["9", "8", "7"]);
    expect(search.found.value).toMatchObject({ looked: 200, more: false, complete: true });
  });

  it("goes on by itself while nothing was found", async () => {
    const { search, asked } = pages(page([], "50"), page([], "20"), page(["3"], "3"));
    await search.look();
    expect(asked).toEqual([null, "50", "20"]);
    expect(search.found.value).toMatchObject({ looked: 300, more: true, looking: false });
  });

  it("ends where there is nothing further back", async () => {
    const { search } = pages(page([], "50"), page([], null));
    await search.look();
    expect(search.found.value).toMatchObject({ lines: [], complete: true, more: false });
  });

  it("says when it does not reach further although there is more", async () => {
    const { search } = pages(page([], null, 100, false));
    await search.look();
    expect(search.found.value).toMatchObject({ complete: false, more: false });
  });

  it("stops when it is told to, keeps what it has, and goes on from there", async () => {
    const asked: (string | null)[] = [];
    let answer: (value: Page<Line>) => void = () => undefined;
    const search = new Search<Line>((before) => {
      asked.push(before);
      return asked.length === 1 ? Promise.resolve(page([], "50")) : new Promise((done) => (answer = done));
    });
    const looking = search.look();
    await expect.poll(() => asked.length).toBe(2);
    search.stop();
    expect(search.found.value).toMatchObject({ looking: false, stopped: true, looked: 100 });
    answer(page(["1"], null));
    await looking;
    expect(search.found.value.lines).toEqual([]);
    void search.look();
    await expect.poll(() => asked).toEqual([null, "50", "50"]);
    expect(search.found.value).toMatchObject({ looking: true, stopped: false });
  });

  it("keeps what it has when it is refused, and can be tried again", async () => {
    const { search, asked } = pages(
      page(["9"], "9"),
      new ApiError(503, "too_slow", "Too slow."),
      page(["8"], null),
    );
    await search.look();
    await search.look();
    expect(search.found.value).toMatchObject({ looking: false, error: { code: "too_slow" } });
    expect(search.found.value.lines).toHaveLength(1);
    await search.look();
    expect(asked).toEqual([null, "9", "9"]);
    expect(search.found.value).toMatchObject({ error: null, complete: true });
  });

  it("looks once, however often it is asked at a time", async () => {
    const { search, asked } = pages(page(["9"], "9"));
    await Promise.all([search.look(), search.look(), search.look()]);
    expect(asked).toEqual([null]);
  });

  it("counts lines where the server does not say how many it looked at", async () => {
    const search = new Search<Line>(() => Promise.resolve({ lines: [{ id: "1" }, { id: "2" }], next: null }));
    await search.look();
    expect(search.found.value).toMatchObject({ looked: 2, complete: true, backTo: null });
  });
});
