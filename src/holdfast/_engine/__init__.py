"""The worker: it claims jobs, runs their handlers, renews leases, writes outcomes, and runs recurring work.

Attempts contain no SQL; loops contain no handlers. In the order in which a job passes through them:

    application.py   holds everything that the application registers, its databases and its settings
    supervisor.py    keeps several worker processes running
    foreground.py    runs a worker as the main thing of a process, until a signal stops it
    process.py       handles signals, event loop and exit of such a process
    worker.py        owns the slots, the handlers and the databases that are served; starts and stops them
    served.py        starts and stops databases, also while the worker runs
    pipeline.py      is the life of a worker in one database: connect, check, register, serve, stop
    session.py       holds what all parts there share: connections, row, held jobs, queue control
    own_row.py       is the row under which the worker is known there
    link.py          runs statements on one connection, and reconnects after failures
    address.py       connects to the hosts of a URL, with timeouts
    server_refusal.py tells refusals that no retry changes from outages
    headroom.py      compares the connections of a process with what the server allows
    registration.py  writes the row: at the start, again if it is lost, and at the end
    serving.py       puts the parts that serve one database together: claim, run, finish, renew, reap
    keeper.py        starts loops and threads, and restarts those that fail
    wake/            sleeps while nothing is due, and wakes up on a notification
    jobs/            takes a job from the claim to its written outcome
    attempt.py       holds the state of one attempt at a job, and the attempts that wait for a slot
    worker_report.py collects what a worker reports to operators with each heartbeat
    report/          tells the log, listeners and failure hooks what happened
    runner.py        defines a runner, its tick and its budget
    runners/         runs recurring work: schedules, maintenance, the application's runners
    once.py          runs all runners once, for one-shot mode
"""
