"""Lets workers and waiting callers sleep while nothing is due, and wakes them up.

In the order in which a wake-up passes through them:

    sleep.py     the one protocol of falling asleep, for workers, readers of the log and waiting callers
    listen.py    receives notifications from PostgreSQL and calls the worker
    broker.py    shares one listening connection among many workers, through a broker
    carriers.py  carries wake-ups over Redis or NATS
    chains.py    waits for chains on a connection, for async and blocking callers
    late.py      the message of a wait that timed out, and the lookup for it
"""
