// @vitest-environment happy-dom
import { render } from "preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { api } from "../src/api";
import { ApiError } from "../src/client";
import { ChainPage } from "../src/pages/chain";
import { job } from "./job";

afterEach(() => {
  render(null, document.body);
  vi.restoreAllMocks();
});

describe("the page of a chain that has left the database", () => {
  it("offers to fetch its first job from the archive", async () => {
    vi.spyOn(api, "getChain").mockRejectedValue(new ApiError(404, "archived", "It is in the archive."));
    const file = {
      source: "job_history",
      starts_on: "2026-03-14",
      object: "x/job_history/day=2026-03-14/1.parquet",
    };
    const fetched = vi
      .spyOn(api, "getArchivedJob")
      .mockResolvedValue({ job: job({ id: "7", status: "completed" }), files: [file], complete: true });
    render(<ChainPage id="7" />, document.body);
    await vi.waitFor(() => expect(document.body.textContent).toContain("This chain has left the database"));
    expect(document.body.textContent).not.toContain("Not found");
    expect(fetched).not.toHaveBeenCalled();
    document.querySelector<HTMLButtonElement>(".notice button")?.click();
    await vi.waitFor(() => expect(document.body.textContent).toContain(file.object));
    expect(fetched.mock.calls[0]?.[0]).toBe("7");
  });
});
