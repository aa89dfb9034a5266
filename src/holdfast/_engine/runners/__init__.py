"""Runs recurring work: the application's runners, periodic jobs, and the built-in runners.

In the order in which a tick passes through them:

    builtin.py      builds the built-in runners, and selects the runners of each database
    database.py     gives runners a link to a database and the id of the worker's row
    loop.py         calls a runner's tick repeatedly, in background mode
    ticker.py       runs one tick: when due, with its lock, within its time, and recorded
    schedules.py    takes and holds the slot of a schedule, and holds the lock of a singleton
    http.py         is a tick that calls a service of the application
    bulk_actions.py carries on actions on all jobs of a filter
    maintenance.py  is the tick that creates and drops partitions and deletes expired rows
"""
