"""Runs with Celery: sends tasks to the broker, or stores results with its SQLAlchemy backend."""

import json
import os
import sys

from celery import Celery

url = os.environ["DATABASE_URL"].replace("postgresql://", "db+postgresql+psycopg://")
celery = Celery("shop", broker=os.environ["CELERY_BROKER_URL"], backend=url)
celery.conf.update(result_extended=True)


@celery.task(name="shop.tasks.ship")
def ship(order_id):
    if order_id != 1:
        raise ValueError("no such order")
    return "shipped"


if sys.argv[1] == "send":
    celery.conf.update(task_ignore_result=True)
    for order in (1, 2):
        ship.delay(order)
    ship.apply_async(kwargs={"order_id": 3}, countdown=2)
elif sys.argv[1] == "send-one":
    celery.send_task("shop.tasks.ship", kwargs=json.loads(sys.argv[2]))
else:
    celery.conf.update(task_always_eager=True, task_store_eager_result=True)
    for order in (1, 2, 3):
        ship.apply_async(kwargs={"order_id": order})
    ship.apply_async([4])
