"""Runs with procrastinate: makes its schema, and defers jobs that stay there."""

import sys

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=sys.argv[1]))


@app.task(name="shop.tasks.ship", queue="shipping")
def ship(order_id):
    raise AssertionError("procrastinate ran it")


@app.task(name="shop.tasks.other")
def other():
    pass


if sys.argv[2] == "defer":
    with app.open():
        app.schema_manager.apply_schema()
        ship.defer(order_id=1)
        ship.configure(lock="customer 7").defer(order_id=2)
        ship.configure(schedule_in={"days": 1}).defer(order_id=3)
        ship.defer(order_id="four")
        other.defer()
else:
    # A worker of procrastinate finds only what was not imported.
    app.run_worker(wait=False, install_signal_handlers=False, listen_notify=False)
