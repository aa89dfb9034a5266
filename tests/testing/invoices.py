"""A piece of a Django site: a model, a view's work, and handlers that use the model's sync and async methods."""

from __future__ import annotations

from django.db import connection, models, transaction

from holdfast import Holdfast, Job, Retry
from tests.kit.django_config import configure

configure()

app = Holdfast()


class Invoice(models.Model):
    number: models.IntegerField[int, int] = models.IntegerField(unique=True)
    paid: models.BooleanField[bool, bool] = models.BooleanField(default=False)
    receipts: models.IntegerField[int, int] = models.IntegerField(default=0)

    class Meta:
        app_label = "invoices"
        db_table = "invoice"

    def __str__(self) -> str:
        return f"invoice {self.number}"


def create_tables() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Invoice)


def pay(number: int) -> None:
    """Do as a view does: data and job in one transaction."""
    with transaction.atomic():
        invoice = Invoice.objects.create(number=number)
        app.sync.enqueue(connection, charge.new(invoice.pk))


@app.job("charge", retry=Retry(max_attempts=1))
def charge(job: Job[None], pk: int) -> None:
    with transaction.atomic():
        invoice = Invoice.objects.select_for_update().get(pk=pk)
        invoice.paid = True
        invoice.save()
        app.sync.enqueue(connection, send_receipt.new(pk))
        if invoice.number < 0:
            Invoice.objects.create(number=invoice.number)


@app.job("receipt.send")
async def send_receipt(job: Job[None], pk: int) -> None:
    invoice = await Invoice.objects.aget(pk=pk)
    invoice.receipts += 1
    await invoice.asave()
