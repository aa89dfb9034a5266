"""Turns a worker's transitions into metrics and traces.

In the order in which a transition passes through them:

telemetry.py      listens to an application's workers and counts their transitions
instruments.py    lists all metrics
series.py         holds the numbers, by metric and labels
prometheus.py     exports the series to Prometheus
opentelemetry.py  exports the series to OpenTelemetry
tracing.py        creates spans of attempts and of publishing
"""
