"""A simulation of many workers and many databases, event by event, with the measured costs and the real constants.

In the order in which a job passes through them:

    machine.py    cores, and the statistics of what happens
    database.py   a server: jobs that wait, calls and what they cost, sleepers, expired leases
    producer.py   enqueues at a rate
    worker.py     a worker process: its slots and its handlers
    pipeline.py   a worker's loops for one database: claim, finish, beat, reap, reconnect
    isolation.py  the loop that runs jobs whose worker was lost
    world.py      a fleet: regions, racks, databases, and what fails
    scenarios.py  the runs that are reported
    real.py       the same small runs with real processes and servers
    validation.py simulated against real
    application.py the handler of the real runs
    report.py     writes report.md and its pictures

Events are batches, not jobs: a claim of 20 jobs, their handlers and their outcomes are one parcel. This is exact for
costs, which are linear in calls and jobs, and for slots, which count jobs. It rounds the moments at which jobs of one
parcel end to one moment.
"""
