import { useState } from "preact/hooks";
import { api } from "../api";
import { many } from "../number";
import type { ChainGraph, ChainNode } from "../openapi";
import { StatusBadge } from "../parts/badge";
import { Diagram } from "../parts/diagram";
import { Json } from "../parts/json";
import { LeftJob } from "../parts/left-job";
import { Page, Panel } from "../parts/page";
import { Refresh } from "../parts/refresh";
import { Bones, Loaded } from "../parts/state";
import { type Column, Table } from "../parts/table";
import { Time } from "../parts/time";
import { useResource } from "../resource";
import { to } from "../route";

const EVERY_MS = 5000;
type View = "graph" | "list";

export function ChainPage({ id }: { id: string }) {
  const [view, setView] = useState<View>(matchMedia("(max-width: 40rem)").matches ? "list" : "graph");
  const chain = useResource(`chain ${id}`, (signal) => api.getChain(id, signal), EVERY_MS);
  const graph = chain.value;
  return (
    <Page
      title={`Chain #${id}`}
      trail={<a href={to("chains")}>Chains</a>}
      note={graph && <Summary graph={graph} />}
      aside={<Refresh />}
    >
      {graph === null && chain.error?.code === "archived" ? (
        <LeftJob id={id} title="This chain has left the database" />
      ) : (
        <Loaded of={chain} skeleton={<Bones rows={3} tall />}>
          {(shown) => (
            <>
              <Panel title="Jobs" aside={<Views view={view} onChange={setView} />}>
                {view === "graph" ? <Diagram graph={shown} /> : <List graph={shown} />}
              </Panel>
              {shown.result !== null && (
                <Panel title="Result">
                  <Json value={shown.result} what="Result" />
                </Panel>
              )}
            </>
          )}
        </Loaded>
      )}
    </Page>
  );
}

function Summary({ graph }: { graph: ChainGraph }) {
  return (
    <span class="job-line">
      <StatusBadge status={graph.status} />
      {many(graph.nodes.length, "job")}
      {!graph.complete && <span class="text-warn">There are more jobs than are shown.</span>}
    </span>
  );
}

function Views({ view, onChange }: { view: View; onChange: (view: View) => void }) {
  return (
    <fieldset class="segments">
      <legend class="hidden">Show as</legend>
      {(["graph", "list"] as const).map((one) => (
        <label key={one}>
          <input type="radio" name="view" checked={view === one} onChange={() => onChange(one)} />
          <span>{one}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** The same as the graph, in words. */
function List({ graph }: { graph: ChainGraph }) {
  const columns: Column<ChainNode>[] = [
    { name: "Job", head: true, cell: (node) => <a href={to(["jobs", node.id])}>#{node.id}</a> },
    { name: "Status", cell: (node) => <StatusBadge status={node.status} /> },
    { name: "Kind", wide: true, cell: (node) => <code>{node.kind}</code> },
    { name: "Comes after", cell: (node) => <Before node={node} graph={graph} /> },
    { name: "Created", cell: (node) => <Time at={node.created_at} /> },
    { name: "Ended", cell: (node) => <Time at={node.finished_at} none="not yet" /> },
  ];
  return <Table caption="Jobs of the chain" columns={columns} rows={graph.nodes} id={(node) => node.id} />;
}

const WORDS = { next: "continues", replay: "runs again", blocks: "waits for" };

function Before({ node, graph }: { node: ChainNode; graph: ChainGraph }) {
  const edges = graph.edges.filter((edge) => edge.target === node.id);
  if (edges.length === 0) return <span class="muted">–</span>;
  return (
    <>
      {edges.map((edge) => (
        <span key={edge.source} class="before">
          {WORDS[edge.kind]} <a href={to(["jobs", edge.source])}>#{edge.source}</a>
        </span>
      ))}
    </>
  );
}
