import { type Signal, signal } from "@preact/signals";
import { type ApiError, asApiError } from "./client";
import type { Looked } from "./openapi";

export interface Page<T> {
  lines: T[];
  /** `before` of the next page; null: there is none. */
  next: string | null;
  looked?: Looked;
}

export interface Found<T> {
  lines: T[];
  /** How many rows were looked at in all, and back to when. */
  looked: number;
  backTo: string | null;
  /** Nothing further back is left. */
  complete: boolean;
  /** There is something to ask for. */
  more: boolean;
  looking: boolean;
  stopped: boolean;
  error: ApiError | null;
}

export type Ask<T> = (before: string | null, signal: AbortSignal) => Promise<Page<T>>;

/**
 * A list that is read page by page, newest first.
 *
 * A page may be empty although there is more further back, since the server looks at a bounded number of rows at a time.
 * So `look` goes on until it has found something, has come to the end, or is stopped.
 */
export class Search<T> {
  readonly found: Signal<Found<T>> = signal(nothing<T>());
  private before: string | null = null;
  private aborter: AbortController | null = null;

  constructor(private readonly ask: Ask<T>) {}

  async look(): Promise<void> {
    if (this.aborter) return;
    const aborter = new AbortController();
    this.aborter = aborter;
    this.set({ looking: true, stopped: false, error: null });
    try {
      while (!(await this.page(aborter.signal)) && this.found.value.more && !aborter.signal.aborted);
    } catch (error) {
      if (!aborter.signal.aborted) this.set({ error: asApiError(error) });
    } finally {
      if (this.aborter === aborter) {
        this.aborter = null;
        this.set({ looking: false });
      }
    }
  }

  /** Stop looking; what was found stays, and `look` goes on from there. */
  stop(): void {
    if (!this.aborter) return;
    this.aborter.abort();
    this.aborter = null;
    this.set({ looking: false, stopped: true });
  }

  /** Whether the page had any lines. */
  private async page(signal: AbortSignal): Promise<boolean> {
    const page = await this.ask(this.before, signal);
    if (signal.aborted) return true;
    const { lines, looked, backTo } = this.found.value;
    this.before = page.next;
    this.set({
      lines: [...lines, ...page.lines],
      looked: looked + (page.looked?.jobs ?? page.lines.length),
      backTo: page.looked?.back_to ?? backTo,
      complete: page.looked?.complete ?? page.next === null,
      more: page.next !== null,
    });
    return page.lines.length > 0;
  }

  private set(change: Partial<Found<T>>): void {
    this.found.value = { ...this.found.value, ...change };
  }
}

function nothing<T>(): Found<T> {
  return {
    lines: [],
    looked: 0,
    backTo: null,
    complete: false,
    more: true,
    looking: false,
    stopped: false,
    error: null,
  };
}
