// @vitest-environment happy-dom
import { render } from "preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import { api } from "../src/api";
import { JobPage } from "../src/pages/job";
import { job } from "./job";

afterEach(() => {
  render(null, document.body);
  vi.restoreAllMocks();
});

/** The titles of the panels that say that something is left out. */
const marked = () =>
  [...document.querySelectorAll("section")]
    .filter((panel) => panel.querySelector("span.redacted[title]"))
    .map((panel) => panel.querySelector("h2")?.textContent);

describe("a job's page", () => {
  it.each(["payload", "result", "headers"] as const)(
    "marks the %s alone when only that was redacted",
    async (part) => {
      const story = job({
        payload: { user: "ann" },
        result: { user: "ann" },
        headers: { user: "ann" },
        redacted: true,
        redacted_parts: [part],
      });
      vi.spyOn(api, "getJob").mockResolvedValue(story);
      render(<JobPage id="7" />, document.body);
      await vi.waitFor(() => expect(document.body.textContent).toContain("partly redacted"));
      expect(marked().map((title) => title?.toLowerCase())).toEqual([part]);
    },
  );
});
