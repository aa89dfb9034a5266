"""The worker: it claims jobs, runs their handlers, renews leases, writes outcomes, and runs recurring work.

Attempts contain no SQL; loops contain no handlers. In the order in which a job passes through them:

    application.py   holds everything that the application registers, its databases and its settings
    supervisor.py    keeps several worker processes running
    worker.py        owns the slots, the handlers and the databases that are served; starts and stops them
    served.py        starts and stops one database, also while the worker runs: its pipeline, relays and runners
    pipeline.py      connects to one database, registers the worker there, and starts serving
    address.py       connects to the hosts of a URL, with timeouts
    link.py          runs statements on one connection, and reconnects after failures
    serving.py       joins all parts that serve one database: claim, run, finish, renew, reap
    keeper.py        starts loops and threads, and restarts those that fail
    wake/            sleeps while nothing is due, and wakes up on a notification
    jobs/            takes a job from the claim to its written outcome
    attempt.py       holds the state of one attempt at a job, and the attempts that wait for a slot
    report/          tells the log, listeners and failure hooks what happened
    runner.py        defines a runner, its tick and its budget
    runners/         runs recurring work: schedules, maintenance, the application's runners
    once.py          runs all runners once, for one-shot mode
"""
