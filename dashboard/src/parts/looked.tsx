import { now } from "../clock";
import { count } from "../number";
import type { Found } from "../search";
import { absolute, brief } from "../time";
import { Button } from "./button";
import { Problem } from "./state";

interface Props {
  found: Found<unknown>;
  /** What is looked at: `jobs`, `chains`. */
  nouns: string;
  look: () => void;
  stop: () => void;
}

/** How far a search has looked, and how to look further, stop, or try again. */
export function LookedLine({ found, nouns, look, stop }: Props) {
  const so = `Searched ${count(found.looked)} ${nouns}${since(found.backTo)}`;
  if (found.error) return <Problem text={`${so}, then: ${found.error.message}`} retry={look} />;
  return (
    <div class="looked" role="status" aria-busy={found.looking}>
      {found.looking ? (
        <>
          <progress aria-label="Searching" />
          <p>
            {found.looked === 0 ? "Searching…" : `${so}${found.lines.length === 0 ? ", nothing yet" : ""}…`}
          </p>
          <Button small icon="cancel" onClick={stop}>
            Stop
          </Button>
        </>
      ) : (
        <>
          <p>{ending(found, so, nouns)}</p>
          {found.more && (
            <Button small icon="search" onClick={look}>
              Look further
            </Button>
          )}
        </>
      )}
    </div>
  );
}

function ending(found: Found<unknown>, so: string, nouns: string): string {
  if (found.complete) return `That is all. ${so}.`;
  if (found.stopped) return `Stopped. ${so}.`;
  if (!found.more) return `${so}. Further back this search does not reach: narrow it to fewer ${nouns}.`;
  return `${so}.`;
}

function since(backTo: string | null): string {
  return backTo === null ? "" : `, back to ${brief(backTo, now.peek()) || absolute(backTo)}`;
}
