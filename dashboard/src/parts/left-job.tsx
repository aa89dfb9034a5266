import { useState } from "preact/hooks";
import { api } from "../api";
import { useResource } from "../resource";
import { Badge, StatusBadge } from "./badge";
import { Button } from "./button";
import { JobBones, Story } from "./job-story";
import { Loaded, Notice } from "./state";

/** A job that is no longer in the database: its file is read only when somebody asks for that. */
export function LeftJob({ id, title }: { id: string; title: string }) {
  const [asked, setAsked] = useState(false);
  if (asked) return <ArchivedStory id={id} />;
  return (
    <Notice icon="archive" title={title}>
      <p>The archive has files that may hold job #{id}, with its attempts.</p>
      <Button look="primary" icon="search" onClick={() => setAsked(true)}>
        Look in the archive
      </Button>
    </Notice>
  );
}

function ArchivedStory({ id }: { id: string }) {
  const archived = useResource(`archived job ${id}`, (signal) => api.getArchivedJob(id, signal));
  const found = archived.value;
  return (
    <>
      <p class="hidden" role="status">
        {found ? "Found in the archive" : ""}
      </p>
      <Loaded of={archived} skeleton={<JobBones />}>
        {({ job, files, complete }) => (
          <>
            <section class="panel archived-from" aria-label="Archived">
              <p class="job-line">
                <Badge tone="held" icon="archive">
                  archived
                </Badge>
                <StatusBadge status={job.status} />
                <code>{job.kind}</code>
                <span>in {job.queue}</span>
              </p>
              <p class="note">This is the job as it was exported, from:</p>
              <ul>
                {files.map((file) => (
                  <li key={file.object}>
                    <code>{file.object}</code>
                  </li>
                ))}
              </ul>
              {!complete && (
                <p class="note">Not every file with attempts was read in time: some may be missing.</p>
              )}
            </section>
            <Story story={job} />
          </>
        )}
      </Loaded>
    </>
  );
}
