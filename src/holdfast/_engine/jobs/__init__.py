"""Takes a job from the claim to its written outcome.

In the order in which a job passes through them:

    slots.py      decides how many jobs of each queue may run, and how many more to claim
    pacing.py     limits the rate of a queue, and lets a slot rest between two jobs
    demand.py     is how many more jobs one database wants, and what its claimer waits for
    claim.py      decides when to claim, and when to sleep
    due.py        takes due jobs, by a plain statement where that can decide which are next
    named.py      takes the jobs that notifications name, while the worker sleeps on
    isolation.py  takes jobs whose worker was lost, and runs them apart
    intake.py     makes attempts of claimed jobs, and gives them to the dispatcher
    held_jobs.py  holds jobs until their outcomes are written, and reports the results
    ready.py      keeps the jobs that wait for a slot, in their order
    dispatch.py   starts ready jobs as slots become free
    deadlines.py  ends handlers that run too long
    lending.py    lends the slots of a database that does not answer
    heartbeat.py  renews the leases of held jobs from its own thread
    heartbeat_answers.py  acts on the answers: queue control, turns of reaping, another registration
    queue_control.py  obeys the control table: paused queues, concurrency, rates, leases
    loop_watch.py names the job that blocks the event loop, from the heartbeat's thread
    run_handlers.py  calls the handler, for one job or for many, and turns its result into an outcome
    executor.py   runs plain functions in threads, or in processes if they keep a CPU core busy
    threads.py    calls plain functions in threads that the program's end does not wait for
    processes.py  starts the processes ahead of the jobs, and replaces one that ends
    child.py      is one process: what its worker calls, and what runs in it
    steps.py      is the verbs of a story, for async and for plain handlers
    step_results.py  records what steps return, and reads it again
    journal.py    finds and records the steps of one attempt at a story
    suspension.py cancels the handler of a story once all its tasks wait
    recorder.py   records the steps of all stories together
    complete.py   completes a job in its handler's own transaction, and writes progress
    finish.py     writes outcomes in batches, and halves a batch that cannot be written
    refusal.py    decides whether an outcome is the cause, and what is written in its place
    reap.py       takes back jobs whose lease has expired
    wakeups.py    wakes the loops, after a notification or when lost jobs were found
"""
