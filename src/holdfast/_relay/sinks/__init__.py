"""Publishes messages to brokers and webhooks; each sink needs its broker's library and is imported by its own name.

In the order in which a message passes through them:

cloud_events.py  wraps a message in a CloudEvents 1.0 envelope
session.py       keeps a broker's connection open and reconnects
nats.py          publishes to NATS JetStream
rabbitmq.py      publishes to RabbitMQ
kafka.py         publishes to Kafka
redis.py         publishes to Redis Streams
webhook.py       posts Standard Webhooks over HTTP, with a circuit breaker, to public addresses only
signature.py     signs and verifies webhooks
"""
