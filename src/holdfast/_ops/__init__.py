"""Serves the operations API and the dashboard, with one service under the API, the terminal and the command line.

In the order in which a request passes through them:

application.py  builds the ASGI application and serves the dashboard's files
endpoint.py     answers one path: checks, calls the route's handler, writes the response
idempotency.py  does a request with an Idempotency-Key once, and answers it again
routes.py       lists all routes with their roles and handlers, and keeps the state that calls share
access.py       authenticates the caller by token, JWT, session cookie or host, and checks the role and the origin
jwt.py          verifies JSON Web Tokens of a trusted issuer
caller.py       defines the caller, roles, tokens, limits per caller, and the refusal of a request
requests.py     defines the queries and bodies that the API accepts
read_requests.py  reads them within limits
databases.py    has the connections of each database, and summarizes its state
newest.py       shares readings of a database between concurrent requests
service.py      runs every query and action, bounded in time and size
pool.py         opens the connections and limits each statement's time
jobs.py         searches jobs, and reads one job's history and the graph of its chain
waits.py        tells why a job does not run now
actions.py      retries, cancels, deletes and reschedules jobs
bulk_actions.py  stores actions on all jobs of a filter, which workers carry out
overview.py     summarizes queues, workers, relays and runners
causes/         finds the causes of what is wrong, by rules over one snapshot of facts
facts.py        reads that snapshot
trends.py       looks back up to a week, step by step
fleet.py        reads workers, queues, kinds, runners and subscriptions
outbox.py       serves the outbox statistics and a manual tick
archive.py      serves the records of the archive, and reads one job from its files
wording.py      puts values into a few words, for the terminal and the command line
redaction.py    hides secrets in payloads
responses/      defines the answers of the API
live.py         streams the overview as Server-Sent Events
health.py       answers /live, /ready and /metrics
gauges.py       reads the metrics of the fleet from its databases
openapi.py      describes the API as an OpenAPI document
vocabulary.py   explains the names of its properties
"""
