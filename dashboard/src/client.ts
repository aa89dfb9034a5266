import { parseExactly } from "./exact";

/** Why a request was not answered, as the server said it or as it is known here. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface Request {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** Refused if it is no more the mark of what is changed. */
  ifMatch?: string | undefined;
}

export interface ClientOptions {
  /** What addresses are relative to. */
  base: string;
  fetch: typeof fetch;
  /** Told when the server does not know who asks. */
  onUnauthorized: () => void;
  /** Told the `Date` header of every answer. */
  onDate?: (date: string | null) => void;
  timeoutMs?: number;
}

const UNSAFE = new Set(["POST", "PUT", "DELETE"]);
const TIMEOUT_MS = 20_000;

export class Client {
  constructor(private readonly options: ClientOptions) {}

  get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return this.send<T>("GET", path, { query, signal });
  }

  post<T>(path: string, body: unknown, signal?: AbortSignal, ifMatch?: string): Promise<T> {
    return this.send<T>("POST", path, { body, signal, ifMatch });
  }

  put<T>(path: string, body: unknown, signal?: AbortSignal, ifMatch?: string): Promise<T> {
    return this.send<T>("PUT", path, { body, signal, ifMatch });
  }

  delete<T>(path: string, signal?: AbortSignal, ifMatch?: string): Promise<T> {
    return this.send<T>("DELETE", path, { signal, ifMatch });
  }

  address(path: string, query: Query = {}): string {
    const url = new URL(path, this.options.base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
    }
    return url.href;
  }

  private async send<T>(method: string, path: string, request: Request): Promise<T> {
    const answer = await this.exchange(method, this.address(path, request.query), request);
    this.options.onDate?.(answer.headers.get("date"));
    if (answer.ok) return answer.status === 204 ? (undefined as T) : await parsed<T>(answer);
    const error = await refusal(answer);
    if (answer.status === 401) this.options.onUnauthorized();
    throw error;
  }

  private async exchange(method: string, address: string, { body, signal, ifMatch }: Request) {
    const headers: Record<string, string> = { accept: "application/json" };
    if (UNSAFE.has(method)) headers["x-holdfast-csrf"] = "1";
    if (body !== undefined) headers["content-type"] = "application/json";
    if (ifMatch !== undefined) headers["if-match"] = ifMatch;
    const timeout = AbortSignal.timeout(this.options.timeoutMs ?? TIMEOUT_MS);
    const init: RequestInit = {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    };
    if (body !== undefined) init.body = JSON.stringify(body);
    try {
      return await this.options.fetch(address, init);
    } catch (error) {
      if (signal?.aborted) throw error;
      if (timeout.aborted) throw new ApiError(0, "timeout", "The server did not answer in time.");
      throw new ApiError(0, "unreachable", "The server cannot be reached.");
    }
  }
}

/** Whether an error only says that nobody waits for the answer any more. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, "unexpected", error instanceof Error ? error.message : String(error));
}

async function parsed<T>(answer: Response): Promise<T> {
  try {
    return parseExactly(await answer.text()) as T;
  } catch {
    throw new ApiError(answer.status, "not_json", "The server answered with something that is not JSON.");
  }
}

/** The error of a problem document; null where it is none. */
export function problem(status: number, said: unknown, retryAfter: number | null = null): ApiError | null {
  if (typeof said !== "object" || said === null || !("type" in said && "detail" in said)) return null;
  const code = String(said.type).replace(/^.*:/, "");
  return new ApiError(status, code, String(said.detail), retryAfter);
}

async function refusal(answer: Response): Promise<ApiError> {
  const after = Number(answer.headers.get("retry-after") ?? Number.NaN);
  const retryAfter = Number.isFinite(after) && after >= 0 ? after : null;
  const found = problem(answer.status, await answer.json().catch(() => null), retryAfter);
  const text = `The server answered ${answer.status}.`;
  return found ?? new ApiError(answer.status, `http_${answer.status}`, text, retryAfter);
}
