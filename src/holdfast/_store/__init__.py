"""The only package that contains SQL: its functions return statements, and describe what running them does.

sql/             the SQL of all statements and migrations
statement.py     defines Statement and loads the SQL by name
schema.py        applies migrations and checks the schema
enqueue.py       inserts jobs
worker.py        registers workers, their heartbeats, queue controls and partitions
sleeper.py       records sleeping workers and chain watchers, so that they can be woken
claim_window.py  chooses which windows of a queue a claim locks
claim_floor.py   remembers where claims ended, so that the next one skips dead index entries
claimed_job.py   defines a claimed job and the result of a claim
claim.py         takes due jobs
lease.py         renews leases, checks claims and stores progress
finish.py        stores how attempts ended
reap.py          takes jobs back whose lease expired
chain.py         completes, deletes and reads chains, and reads blockers
event.py         publishes events and records received messages
subscription.py  joins, feeds, pauses, replays and parks for subscriptions
position.py      reads the next page of the event log
schedule.py      claims slots of schedules and records runs
maintenance.py   deletes and folds old rows
census.py        counts live jobs and reads tallies of ended ones
inspect.py       reads jobs, attempts and server limits, and deletes a job
search.py        searches, cancels and replays jobs
access.py        stores access tokens, sessions, the audit log and idempotency keys
testing.py       moves time and jobs for the test kit
"""
