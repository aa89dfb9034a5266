import type { ComponentChildren } from "preact";
import type { ApiError } from "../client";
import type { Resource } from "../resource";
import { me } from "../session";
import { Button } from "./button";
import { Icon, type IconName } from "./icon";

interface NoticeProps {
  icon: IconName;
  title: string;
  tone?: "ok" | "warn" | "bad" | "idle";
  children?: ComponentChildren;
  alert?: boolean;
}

/** What stands where a page has nothing else to show. */
export function Notice({ icon, title, tone = "idle", children, alert }: NoticeProps) {
  return (
    <div class={`notice tone-${tone}`} role={alert ? "alert" : undefined}>
      <Icon name={icon} size={28} />
      <h2>{title}</h2>
      {children && <div class="notice-text">{children}</div>}
    </div>
  );
}

export function NoPermission({ error }: { error: ApiError }) {
  return (
    <Notice icon="blocked" title="You may not see this" tone="warn">
      <p>{error.message}</p>
      <p class="muted">
        You are {me.value?.name ?? "unknown"}, with the role {me.value?.role ?? "unknown"}. Ask whoever runs
        this installation for another.
      </p>
    </Notice>
  );
}

export function Failure({ error, retry }: { error: ApiError; retry: () => void }) {
  if (error.status === 403) return <NoPermission error={error} />;
  if (error.status === 404 || error.status === 422) {
    return (
      <Notice icon="search" title="Not found" tone="idle">
        <p>{error.message}</p>
      </Notice>
    );
  }
  return (
    <Notice icon="warning" title="This could not be loaded" tone="bad" alert>
      <p>{error.message}</p>
      <p class="muted">
        <code>{error.code}</code>
        {error.retryAfter !== null && ` The server asks to wait ${error.retryAfter} s.`}
      </p>
      <Button icon="refresh" onClick={retry}>
        Try again
      </Button>
    </Notice>
  );
}

/** A line that says what went wrong, where the rest can stay. */
export function Problem({ text, retry }: { text: string; retry?: () => void }) {
  return (
    <div class="problem tone-bad" role="alert">
      <Icon name="warning" />
      <p>{text}</p>
      {retry && (
        <Button small onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

interface LoadedProps<T> {
  of: Resource<T>;
  /** What stands in until it is there, of the same height. */
  skeleton: ComponentChildren;
  children: (value: T) => ComponentChildren;
}

/** What was loaded, or the state it is in. A value that could not be refreshed stays, and it is said. */
export function Loaded<T>({ of, skeleton, children }: LoadedProps<T>) {
  const { value, error, loading, reload } = of;
  if (value === null) {
    if (error && !loading) return <Failure error={error} retry={reload} />;
    return (
      <div aria-busy="true">
        <p class="hidden" role="status">
          Loading
        </p>
        {skeleton}
      </div>
    );
  }
  return (
    <>
      {error && (
        <Problem text={`This could not be refreshed and may be old: ${error.message}`} retry={reload} />
      )}
      {children(value)}
    </>
  );
}

/** A grey box where something will be. */
export function Bones({ rows = 1, tall = false }: { rows?: number; tall?: boolean }) {
  return (
    <div class="bones" aria-hidden="true">
      {Array.from({ length: rows }, (_, row) => (
        <div key={row} class={tall ? "bone tall" : "bone"} />
      ))}
    </div>
  );
}
