import type { JobStory } from "../openapi";
import { to } from "../route";
import { type Step, type Tone, told } from "../story";
import { between, duration } from "../time";
import { Icon, type IconName } from "./icon";
import { Moment } from "./time";

const ICONS: Record<Tone, IconName> = {
  ok: "completed",
  bad: "failed",
  warn: "retry",
  busy: "processing",
  held: "blocked",
  idle: "pending",
};

/** A job's story from top to bottom, with the time that lay between. */
export function Timeline({ story }: { story: JobStory }) {
  const steps = told(story);
  return (
    <ol class="timeline">
      {steps.map((step, place) => (
        <li key={`${place} ${step.title}`} class={`tone-${step.tone}`} data-ahead={step.ahead}>
          <span class="timeline-mark">
            <Icon name={ICONS[step.tone]} size={18} />
          </span>
          <div>
            <h3>{step.title}</h3>
            <p class="muted">
              {step.at && <Moment at={step.at} />}
              {gap(steps[place - 1], step)}
              {step.worker && ` on ${step.worker}`}
              {step.version && `, version ${step.version}`}
              {step.started && (
                <>
                  , started <Moment at={step.started} />
                </>
              )}
              {step.waited != null && ` after waiting ${duration(step.waited)}`}
              {step.seconds != null && `, ran for ${duration(step.seconds)}`}
            </p>
            <Links step={step} />
            {step.code && <code class="text-bad">{step.code}</code>}
            {step.text && <p class="timeline-text">{step.text}</p>}
            {step.traceback && (
              <details>
                <summary>Traceback</summary>
                <pre class="error-text">{step.traceback}</pre>
              </details>
            )}
            {step.log && (
              <details>
                <summary>Log</summary>
                <pre class="error-text">{step.log}</pre>
              </details>
            )}
            {step.tone === "busy" && story.progress !== null && !step.jobs && (
              <progress max={1} value={story.progress} aria-label="Progress" />
            )}
          </div>
        </li>
      ))}
    </ol>
  );
}

function Links({ step }: { step: Step }) {
  if (!step.jobs && !step.chains) return null;
  return (
    <p class="timeline-links">
      {step.jobs?.map((id) => (
        <a key={id} href={to(["jobs", id])}>
          Job #{id}
        </a>
      ))}
      {step.chains?.map((id) => (
        <a key={id} href={to(["chains", id])}>
          Chain #{id}
        </a>
      ))}
    </p>
  );
}

function gap(before: Step | undefined, step: Step): string {
  if (!before?.at || !step.at || step.ahead) return "";
  const seconds = between(before.at, step.at);
  return seconds > 0 ? `, ${duration(seconds)} later` : "";
}
