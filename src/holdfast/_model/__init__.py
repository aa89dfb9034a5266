"""The values that all other packages use: kinds, jobs, events, outcomes, settings and errors, without SQL.

settings_table.py  lists the settings: name, unit, default and meaning
settings.py        reads and checks the settings
scheme.py          finds what is wrong with the scheme of an address
databases.py       holds several databases by name, reads them from a file, and places a key in one of them
databases_file.py  reads the file of databases again whenever it has changed
step.py            names steps, and finds the result types of their functions
story.py           is the verbs of a job that records steps
failure_record.py  converts failures of steps to JSON and back
message.py         holds the messages that stories receive
kind.py            holds a handler under its name, and makes jobs for it
handler.py         checks the function that runs the jobs of a kind, and reads its parameters
declared_kind.py   is a kind whose handler runs in another service
payload_schemas.py returns the JSON schemas of payloads
batch_kind.py      holds a handler that takes several jobs in one call
work.py            holds how the jobs of a kind are run: their lease, their longest runtime, and where
codec.py           converts payloads to JSON text and back, by their declared types
result.py          converts the result of a handler, by its return type
not_json.py        finds values that JSON does not have: NaN, sets, other objects
new_job.py         holds a validated job and its options before it is enqueued
continuation.py    holds what goes on a chain: the next job, or a group
limit.py           holds a limit, and makes its key from a job's arguments
unique.py          holds the unique key of a job, given or made from its arguments
option.py          checks the values of options: text, numbers, choices, times, headers
connection.py      types the connections that a caller may pass
handle.py          is the handle of an enqueued job
job.py             is the job that a handler receives
outcome.py         holds the outcomes that an attempt ends with, and the signals that ask for one
retry.py           computes the delay before the next attempt
event.py           holds topics and events
schedule.py        computes when recurring work runs
call.py            explains calls with wrong arguments, finds the line of the caller, and refuses calls in an import
duration.py        converts durations, seconds or timedeltas, and refuses others
errors.py          defines the errors that Holdfast raises, and the signal that asks a handler to stop
"""
