"""Every installed app may have such a file; each is found when the site starts."""

from __future__ import annotations

from holdfast import Holdfast, Job

from .models import Order

app = Holdfast()


@app.job("receipt.send")
def send_receipt(job: Job[None], order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(receipt=f"sent, attempt {job.attempt}")
