import { advice } from "../advice";
import { now } from "../clock";
import { many } from "../number";
import type { Overview, Problem } from "../types";
import { Icon } from "./icon";
import { Time } from "./time";

// The stream tells something every two seconds.
const OLD_MS = 20_000;

/** Whether all is well, and if not, what to do. What is old says nothing of now. */
export function Verdict({ overview }: { overview: Overview | null }) {
  if (overview === null) return <div class="verdict bone" aria-hidden="true" />;
  const { ok, problems, workers, queues, counted_at } = overview;
  const critical = problems.some((problem) => problem.severity === "critical");
  const told = ok && problems.length === 0 ? "ok" : critical ? "bad" : "warn";
  const verdict = told === "ok" ? "All is well" : many(problems.length, "problem");
  const old = now.value - Date.parse(overview.at) > OLD_MS;
  const tone = old ? "idle" : told;
  return (
    <section class={`verdict tone-${tone}`} aria-label="Whether all is well">
      <div class="verdict-line">
        <span class="verdict-mark">
          <Icon name={old ? "pending" : told === "ok" ? "completed" : "warning"} size={30} />
        </span>
        <div>
          <div role="status">
            <h2>{old ? "Not known now" : verdict}</h2>
          </div>
          <p>
            {old && (
              <>
                {verdict}, <Time at={overview.at} />;{" "}
              </>
            )}
            {many(workers, "live worker")}, {many(queues.length, "queue")}; jobs counted{" "}
            <Time at={counted_at} none="never yet" />
          </p>
        </div>
      </div>
      {problems.length > 0 && (
        <ul class="problems">
          {[...problems].sort(bySeverity).map((problem) => (
            <ProblemLine key={`${problem.code} ${problem.about}`} problem={problem} />
          ))}
        </ul>
      )}
    </section>
  );
}

function ProblemLine({ problem }: { problem: Problem }) {
  const { what, command, link, page } = advice(problem);
  const critical = problem.severity === "critical";
  return (
    <li class={critical ? "tone-bad" : "tone-warn"}>
      <Icon name={critical ? "failed" : "warning"} />
      <div>
        <p>
          <b class="severity">{problem.severity}</b> {problem.text}
        </p>
        <p class="advice">
          {what} {command && <code>{command}</code>} <a href={link}>{page}</a>
        </p>
      </div>
    </li>
  );
}

function bySeverity(a: Problem, b: Problem): number {
  return Number(b.severity === "critical") - Number(a.severity === "critical");
}
