"""The application object: registration of handlers, and the methods that callers use.

app.py           the Holdfast class: a registry and the clients side by side, and workers
declarations.py  declares limits, topics and messages
registry.py      registers kinds, subscriptions, runners, schedules and hooks
places.py        remembers where each of them was registered
client.py        the verbs for async connections: enqueues, publishes, cancels; reads, completes, waits for chains
sync.py          the same verbs for sync connections, as `app.sync`
verbs.py         the checks and statements of the verbs, and what their rows become, once for both clients
archiving.py     builds the runners of the archive
roles.py         names the database role that a verb needs, if the user lacks it
arguments.py     checks the arguments that users pass
"""
