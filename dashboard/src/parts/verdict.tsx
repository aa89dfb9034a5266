import { now } from "../clock";
import { many } from "../number";
import type { Overview, Problem } from "../openapi";
import { parse, to } from "../route";
import { Icon } from "./icon";
import { Time } from "./time";

// The stream tells something every two seconds.
const OLD_MS = 15_000;

/** Whether all is well, and if not, what to do. What is old says nothing of now. */
export function Verdict({ overview }: { overview: Overview | null }) {
  if (overview === null) return <div class="verdict bone" aria-hidden="true" />;
  const { ok, verdict, problems, workers, queues, counted_at } = overview;
  const critical = problems.some((problem) => problem.severity === "critical");
  const told = ok ? "ok" : critical ? "bad" : "warn";
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
          {problems.map((problem) => (
            <ProblemLine key={`${problem.code} ${problem.about}`} problem={problem} />
          ))}
        </ul>
      )}
    </section>
  );
}

function ProblemLine({ problem }: { problem: Problem }) {
  const { severity, text, advice, command, since } = problem;
  const critical = severity === "critical";
  const { path, query } = parse(problem.page);
  return (
    <li class={critical ? "tone-bad" : "tone-warn"}>
      <Icon name={critical ? "failed" : "warning"} />
      <div>
        <p>
          <b class="severity">{severity}</b> {text}
        </p>
        <p class="advice">
          Began <Time at={since} />. {advice} {command && <code>{command}</code>}{" "}
          <a href={to(path, query)}>{nameOf(path)}</a>
        </p>
      </div>
    </li>
  );
}

/** The name of a page, as its title has it. */
function nameOf([page = "overview", id]: string[]): string {
  if (page === "jobs" && id) return `Job #${id}`;
  const name = id ? (page === "relays" ? "Parked events" : "Runs") : page.replace("-", " ");
  return name.charAt(0).toUpperCase() + name.slice(1);
}
