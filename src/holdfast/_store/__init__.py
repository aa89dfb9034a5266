"""The only package that contains SQL: its functions return statements, and describe what running them does.

sql/             the SQL of all statements and migrations
statement.py     defines Statement, how rows become values, and loads the SQL by name
answer.py        is the base of rows that pages show as they are
script.py        splits a script into its statements
schema.py        applies migrations and checks the schema
measure.py       measures the speed of a server, without a table
needs.py         tries the features that a server must have, and reads how it is set
enqueue.py       inserts jobs
claim.py         takes due jobs, and remembers where claims ended
plain.py         takes due jobs with one statement each, where nothing has to be decided
lease.py         renews leases, checks claims, stores progress, and takes jobs back whose lease expired
bulk_action.py   begins, carries out, stops and resumes actions on all jobs of a filter
bulk_action_line.py  reads them as pages show them
limit.py         stores limits, promotes what waits for them unnoticed, and explains what a job waits for
finish.py        stores how attempts ended
tally.py         reads and folds the counts of ended attempts, and how long they waited and ran
step.py          records the steps of stories, and sends messages to them
worker.py        registers workers, their heartbeats, queue controls and partitions
sleeper.py       records sleeping workers and chain watchers, so that they can be woken
chain.py         completes, deletes and reads chains, and reads blockers
event.py         publishes events, records received messages, and reads the next page of the log
subscription.py  joins, feeds, pauses, replays and parks for subscriptions
schedule.py      claims slots of schedules and records runs
maintenance.py   deletes old rows
job.py           reads one job by its id, retries it, and changes when it is due
inspect.py       reads jobs, attempts, counts and server limits, and deletes a job
rehearse.py      reads what waits for the code of an application
incident.py      reads what explains that jobs or events wait
search.py        searches, cancels and replays jobs
dead_letter.py   groups dead letters by kind, error and version
trend.py         keeps and reads what waited in the past, and what each worker did
outbox.py        reads, locks and marks rows of another table, and records imported rows
archive.py       reads and sets retention, and records every file of the archive
catalog.py       reads the columns, keys and references of the application's tables
own_tables.py    composes statements on the application's tables: moves, reads, drops and restores their rows
access.py        stores access tokens, sessions, the audit log and idempotency keys
testing.py       moves time and jobs for the test kit
"""
