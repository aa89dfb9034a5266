"""Serves the operations API and the dashboard, with one service under the API, the terminal and the command line.

In the order in which a request passes through them:

application.py    builds the ASGI application and keeps its state
page.py           serves the dashboard's files
endpoint.py       answers one path: checks, calls the route's handler, writes the response
parse.py          reads path, query and body within limits
requests.py       defines the queries and bodies that the API accepts
access.py         authenticates the caller and checks the role and the origin
session.py        signs session cookies and reads access tokens
jwt.py            verifies JSON Web Tokens of a trusted issuer
person.py         defines the caller, the roles and the refusal
limit.py          limits failed logins and concurrent requests
idempotency.py    replays the answer of a repeated Idempotency-Key
routes.py         lists all routes with their roles and handlers
route.py          defines a route, a call of it, and the state that calls share
service.py        runs every query and action, bounded in time and size
pool.py           opens the connections and limits each statement's time
overview.py       summarizes queues, workers, relays and runners
problem.py        lists the problems that an operator should see
find.py           searches jobs
job_detail.py     reads one job's history and the graph of its chain
actions.py        retries, cancels, deletes and reschedules jobs
fleet.py          reads workers, queues, kinds, runners and subscriptions
outbox.py         serves the outbox statistics and a manual tick
redaction.py      hides secrets in payloads
responses/        defines the answers of the API
live.py           streams the overview as Server-Sent Events
health.py         answers /live, /ready and /metrics
fleet_metrics.py  reads the fleet's metrics from the database
openapi.py        describes the API as an OpenAPI document
"""
