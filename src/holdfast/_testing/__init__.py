"""Tests applications: enqueues, runs and inspects their jobs on the test's own connection.

In the order in which a test uses them:

kit.py       offers `Testing`, the verbs of a test
enqueued.py  compares enqueued jobs with an expected one
stage.py     runs jobs one at a time, like a worker
thread.py    runs async work behind a sync call
ran.py       reports the attempts of a drain
"""
