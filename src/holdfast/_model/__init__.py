"""The values that all other packages use: kinds, jobs, events, outcomes, settings and errors, without SQL or I/O.

settings_table.py  lists the settings: name, unit, default and meaning
settings.py        reads and checks the settings
kind.py            holds a handler under its name and makes jobs for it
batch.py           holds a handler that takes many jobs in one call
payload.py         validates payloads by their declared types
codec.py           encodes payloads as JSON text
new_job.py         holds a validated job and its options before it is enqueued
connection.py      types the connections that a caller may pass
job.py             holds the handle of an enqueued job, and the job that a handler receives
lease.py           holds the time a job stays claimed between two heartbeats
signal.py          asks a running handler to stop
outcome.py         holds the ways an attempt can end
retry.py           computes the delay before the next attempt
result.py          encodes and decodes what handlers return
event.py           holds topics and events
schedule.py        computes when recurring work runs
errors.py          defines the errors that Holdfast raises
"""
