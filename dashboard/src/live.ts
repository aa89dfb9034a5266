import { type Signal, signal } from "@preact/signals";
import { ApiError, asApiError, problem } from "./client";
import type { Overview, Refusal } from "./openapi";

export type Beat = "connecting" | "live" | "reconnecting" | "paused";

/** What of an EventSource is used. */
export interface Stream {
  readonly readyState: number;
  onmessage: ((event: MessageEvent<string>) => void) | null;
  onerror: ((event: Event) => void) | null;
  addEventListener(type: "trouble", listener: (event: MessageEvent<string>) => void): void;
  close(): void;
}

export interface LiveParts {
  load: (signal: AbortSignal) => Promise<Overview>;
  open: () => Stream;
}

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
// A proxy may hold the stream back without closing it.
const SILENCE_MS = 30_000;
const CLOSED = 2;

/**
 * The overview, live.
 *
 * It is asked for once, which also tells whether we may, and then follows the stream. A stream that merely ends is opened
 * again by the browser; one that is refused or silent begins anew, after a pause that doubles. Nothing is open while it is
 * paused.
 */
export class LiveOverview {
  readonly beat: Signal<Beat> = signal("connecting");
  readonly overview: Signal<Overview | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  private stream: Stream | null = null;
  private aborter: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wait = FIRST_WAIT_MS;

  constructor(private readonly parts: LiveParts) {}

  async start(): Promise<void> {
    this.close();
    this.beat.value = this.overview.value ? "reconnecting" : "connecting";
    const aborter = new AbortController();
    this.aborter = aborter;
    try {
      const overview = await this.parts.load(aborter.signal);
      if (aborter.signal.aborted) return;
      this.take(overview);
      this.follow();
    } catch (error) {
      if (!aborter.signal.aborted) this.fail(asApiError(error));
    }
  }

  pause(): void {
    this.close();
    this.beat.value = "paused";
  }

  /** Close everything; `start` begins anew. */
  close(): void {
    clearTimeout(this.timer);
    this.aborter?.abort();
    this.aborter = null;
    if (this.stream) {
      this.stream.onmessage = null;
      this.stream.onerror = null;
      this.stream.close();
      this.stream = null;
    }
  }

  private follow(): void {
    const stream = this.parts.open();
    this.stream = stream;
    this.listen();
    stream.onmessage = (event) => {
      const overview = read<Overview>(event.data);
      if (!overview) return;
      this.beat.value = "live";
      this.wait = FIRST_WAIT_MS;
      this.take(overview);
      this.listen();
    };
    stream.addEventListener("trouble", (event) => {
      this.error.value =
        problem(0, read<Refusal>(event.data)) ?? new ApiError(0, "trouble", "The overview cannot be read.");
      this.listen();
    });
    stream.onerror = () => {
      if (stream !== this.stream) return;
      if (stream.readyState === CLOSED) this.retry();
      else this.beat.value = "reconnecting";
    };
  }

  private take(overview: Overview): void {
    this.overview.value = overview;
    this.error.value = null;
  }

  private fail(error: ApiError): void {
    this.error.value = error;
    if (error.status === 401 || error.status === 403) this.close();
    else this.retry(error.retryAfter);
  }

  /** Begin anew should the stream stay silent. */
  private listen(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.retry(), SILENCE_MS);
  }

  private retry(seconds: number | null = null): void {
    this.close();
    this.beat.value = "reconnecting";
    const jitter = 0.75 + Math.random() / 2;
    const wait = Math.max(this.wait * jitter, (seconds ?? 0) * 1000);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    this.timer = setTimeout(() => void this.start(), wait);
  }
}

function read<T>(data: string): T | null {
  try {
    return JSON.parse(data) as T;
  } catch {
    return null;
  }
}
