"""Takes a job from the claim to its written outcome.

In the order in which a job passes through them:

    slots.py      decides how many jobs of each queue may run, and how many more to claim
    claim.py      takes due jobs from the database
    isolation.py  takes jobs whose worker was lost, and runs them apart
    held_jobs.py  makes attempts of claimed jobs, holds them until their outcomes are written, and reports the results
    heartbeat.py  renews the leases of held jobs from its own thread
    dispatch.py   starts ready jobs as slots become free
    lending.py    lends the slots of a database that does not answer
    handlers.py   calls the handler, for one job or for many, and turns its result into an outcome
    executor.py   runs plain functions in threads, or in processes if they keep a CPU core busy
    complete.py   completes a job in its handler's own transaction, and writes progress
    finish.py     writes outcomes in batches
    reap.py       takes back jobs whose lease has expired
"""
