import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type ApiError, asApiError } from "./client";

export interface Resource<T> {
  value: T | null;
  error: ApiError | null;
  loading: boolean;
  reload: () => void;
}

/** Told to the window when somebody wants what is shown to be asked for anew. */
export const REFRESH = "holdfast:refresh";

interface State<T> {
  key: string;
  value: T | null;
  error: ApiError | null;
  loading: boolean;
}

/**
 * What a page shows, asked for when it is opened and again every so many milliseconds while it is seen.
 *
 * While the key stays the same the last value stays too, so that nothing moves when it is asked for again.
 */
export function useResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  every: number | null = null,
): Resource<T> {
  const [state, setState] = useState<State<T>>({ key, value: null, error: null, loading: true });
  const [asked, setAsked] = useState(0);
  const latest = useRef(load);
  latest.current = load;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `asked` is not read, it asks again
  useEffect(() => {
    const aborter = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;

    const ask = async () => {
      setState((old) => ({
        key,
        value: old.key === key ? old.value : null,
        error: old.error,
        loading: true,
      }));
      let error: ApiError | null = null;
      try {
        const value = await latest.current(aborter.signal);
        if (aborter.signal.aborted) return;
        setState({ key, value, error: null, loading: false });
      } catch (raised) {
        if (aborter.signal.aborted) return;
        error = asApiError(raised);
        setState((old) => ({ ...old, error, loading: false }));
      }
      const wait = pause(every, error);
      if (wait !== null) timer = setTimeout(() => void again(), wait);
    };
    const again = () => (document.visibilityState === "visible" ? ask() : waitUntilSeen());
    const waitUntilSeen = () =>
      document.addEventListener("visibilitychange", () => void again(), {
        once: true,
        signal: aborter.signal,
      });

    void ask();
    addEventListener(REFRESH, () => setAsked((times) => times + 1), { signal: aborter.signal });
    return () => {
      aborter.abort();
      clearTimeout(timer);
    };
  }, [key, every, asked]);

  const reload = useCallback(() => setAsked((times) => times + 1), []);
  const { value, error, loading } = state.key === key ? state : { value: null, error: null, loading: true };
  return { value, error, loading, reload };
}

/** How long to wait before asking again; null: not at all. */
export function pause(every: number | null, error: ApiError | null): number | null {
  if (every === null || error?.status === 401 || error?.status === 403 || error?.status === 404) return null;
  if (error === null) return every;
  return Math.max(every, (error.retryAfter ?? 5) * 1000);
}
