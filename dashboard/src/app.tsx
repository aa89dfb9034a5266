import { type ComponentChildren, Fragment } from "preact";
import { ArchivePage } from "./pages/archive";
import { AuditPage } from "./pages/audit";
import { BulkActionsPage } from "./pages/bulk-actions";
import { ChainPage } from "./pages/chain";
import { ChainsPage } from "./pages/chains";
import { DatabasesPage } from "./pages/databases";
import { DeadLettersPage } from "./pages/dead-letters";
import { JobPage } from "./pages/job";
import { JobsPage } from "./pages/jobs";
import { LimitsPage } from "./pages/limits";
import { LoginPage } from "./pages/login";
import { OverviewPage } from "./pages/overview";
import { ParkedPage } from "./pages/parked";
import { QueuesPage } from "./pages/queues";
import { RelaysPage } from "./pages/relays";
import { RunnersPage } from "./pages/runners";
import { RunsPage } from "./pages/runs";
import { TrendsPage } from "./pages/trends";
import { WorkersPage } from "./pages/workers";
import { Page } from "./parts/page";
import { Failure, Notice } from "./parts/state";
import { route, to } from "./route";
import { ask, session } from "./session";
import { Shell } from "./shell";

export function App() {
  const now = session.value;
  switch (now.state) {
    case "asking":
      return (
        <p class="hidden" role="status">
          Loading
        </p>
      );
    case "out":
      return <LoginPage note={now.note} />;
    case "failed":
      return (
        <main class="alone">
          <Failure error={now.error} retry={() => void ask()} />
        </main>
      );
    case "in":
      return <Shell>{chosen(now.me.databases)}</Shell>;
  }
}

/** The page; where one of several databases must be named and is not, the page of them all. */
function chosen(databases: string[]): ComponentChildren {
  const { database, path } = route.value;
  if (databases.length > 0 && database === null) return <DatabasesPage key="databases" />;
  if (database !== null && !databases.includes(database)) return <NotFound key="none" />;
  return <Fragment key={`database ${database}`}>{page(path)}</Fragment>;
}

function page([name = "", of]: string[]): ComponentChildren {
  switch (name) {
    case "":
      return <OverviewPage key="overview" />;
    case "jobs":
      return of === undefined ? <JobsPage key="jobs" /> : <JobPage key={`job ${of}`} id={of} />;
    case "chains":
      return of === undefined ? <ChainsPage key="chains" /> : <ChainPage key={`chain ${of}`} id={of} />;
    case "dead-letters":
      return <DeadLettersPage key="dead-letters" />;
    case "bulk-actions":
      return <BulkActionsPage key="bulk-actions" />;
    case "trends":
      return <TrendsPage key="trends" />;
    case "queues":
      return <QueuesPage key="queues" />;
    case "limits":
      return <LimitsPage key="limits" />;
    case "workers":
      return <WorkersPage key="workers" />;
    case "runners":
      return of === undefined ? <RunnersPage key="runners" /> : <RunsPage key={`runs ${of}`} name={of} />;
    case "relays":
      return of === undefined ? <RelaysPage key="relays" /> : <ParkedPage key={`parked ${of}`} name={of} />;
    case "archive":
      return <ArchivePage key="archive" />;
    case "audit":
      return <AuditPage key="audit" />;
    default:
      return <NotFound key="none" />;
  }
}

function NotFound() {
  return (
    <Page title="Not found">
      <Notice icon="search" title="There is no such page">
        <a href={to("", {}, null)}>Go to the first page</a>
      </Notice>
    </Page>
  );
}
