"""Turns a worker's transitions into metrics and traces.

In the order in which a transition passes through them:

telemetry.py      listens to an application's workers and counts their transitions
metrics.py        lists all metrics, and holds their numbers by labels
prometheus.py     exports the numbers to Prometheus
opentelemetry.py  exports the numbers to OpenTelemetry, and creates spans of attempts and of publishing
"""
