"""Defines the answers of the operations API; its OpenAPI document and the dashboard's types come from this list.

Times are UTC; durations are seconds unless the name says otherwise; ids are strings in JSON, since a browser's numbers
end at 2**53.

job.py    answers about jobs, chains, the caller and the audit, and the parts that all answers share
fleet.py  answers about the overview, workers, queues, kinds, runners, subscriptions and the outbox
trends.py  answers about the past, step by step
archive.py  answers about retention, exported files, and jobs in them
"""
