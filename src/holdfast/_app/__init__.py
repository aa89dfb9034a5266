"""The application object: registration of handlers, and the methods that callers use.

app.py       the Holdfast class: a registry and a client side by side, and workers
registry.py  registers kinds, topics, subscriptions, runners, schedules and hooks
client.py    enqueues, publishes, cancels, and reads, completes and waits for chains
"""
