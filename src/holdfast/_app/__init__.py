"""The application object: registration of handlers, and the methods that callers use.

app.py        the Holdfast class: a registry and the clients side by side, and workers
registry.py   registers kinds, topics, subscriptions, runners, schedules and hooks
client.py     the verbs for async connections: enqueues, publishes, cancels, and reads, completes and waits for chains
sync.py       the same verbs for sync connections, as `app.sync`
verbs.py      the checks and statements of the verbs, and what their rows become, once for both clients
archiving.py  builds the runners of the archive
roles.py      names the database role that a verb needs, if the user lacks it
arguments.py  checks the arguments that users pass
"""
