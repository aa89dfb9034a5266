"""Reads the event log and delivers each event to a sink or makes a job of it.

In the order in which an event passes through them:

subscription.py  defines what an application subscribes to: a feed of jobs or a relay to a sink
relays.py        runs one consumer per subscription on one database
sleep.py         decides when readers of the log sleep and wakes them
consumer.py      holds partitions of a subscription under a lease
partition.py     reads pages of one partition, or makes jobs of them, and stores the position
publisher.py     publishes a page, in order per key, and parks events that fail
message.py       defines the message that a sink receives and the answers it gives
sinks/           publishes to brokers and webhooks
"""
