import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { REFRESH } from "./resource";
import { type Ask, type Found, Search } from "./search";

export interface Searching<T> {
  found: Found<T>;
  look: () => void;
  stop: () => void;
  /** Begin anew from the newest. */
  again: () => void;
}

/** A search that begins when a page is opened, and anew whenever its key changes. */
export function useSearch<T>(key: string, ask: Ask<T>): Searching<T> {
  const [times, setTimes] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the key says what is asked for
  const search = useMemo(() => new Search(ask), [key, times]);
  const again = useCallback(() => setTimes((before) => before + 1), []);
  useEffect(() => {
    void search.look();
    addEventListener(REFRESH, again);
    return () => {
      search.stop();
      removeEventListener(REFRESH, again);
    };
  }, [search, again]);
  return { found: search.found.value, look: () => void search.look(), stop: () => search.stop(), again };
}
