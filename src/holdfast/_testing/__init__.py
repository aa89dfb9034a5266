"""Tests applications: enqueues, runs and inspects their jobs on the test's own connection.

In the order in which a test uses them:

kit.py      offers `Testing`, the verbs of a test
drive.py    runs async work behind a sync call
stage.py    runs jobs one at a time, like a worker
recording.py records steps on the test's connection, and lets the worker die after one of them
events.py   makes the jobs of a test's events
results.py  holds the enqueued jobs and the attempts of a drain, and compares them with the expected ones
"""
