import { api } from "../api";
import { BulkActionList } from "../parts/bulk-actions";
import { Page } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded, Notice } from "../parts/state";
import { useResource } from "../resource";
import { to } from "../route";

const EVERY_MS = 2_000;
const MOST = 50;

export function BulkActionsPage() {
  const found = useResource(
    "bulk actions",
    (signal) => api.listBulkActions({ limit: MOST }, signal),
    EVERY_MS,
  );
  return (
    <Page
      title="Bulk actions"
      note="Actions on all jobs of a filter. Workers carry them out, whether or not a page is open."
      aside={<Refresh />}
    >
      <Loaded of={found} skeleton={<Bones rows={4} tall />}>
        {({ items: actions }) =>
          actions.length === 0 ? (
            <Notice icon="jobs" title="No bulk action yet">
              <p>
                Begin one at a group of <a href={to("dead-letters")}>dead letters</a>, or with a filter of{" "}
                <a href={to("jobs")}>jobs</a>.
              </p>
            </Notice>
          ) : (
            <BulkActionList actions={actions} onChange={found.reload} />
          )
        }
      </Loaded>
    </Page>
  );
}
