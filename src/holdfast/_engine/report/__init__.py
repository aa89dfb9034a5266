"""Reports what happened to jobs, once the outcome is written.

In the order in which a written outcome passes through them:

    job_log.py     writes log lines about failed and lost attempts
    hook.py        calls the application's failure and dead-letter hooks
    transition.py  calls in-process listeners and observers
"""
