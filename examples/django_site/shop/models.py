from __future__ import annotations

from django.db import models


class Order(models.Model):
    address = models.EmailField()
    receipt = models.TextField(null=True)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.address}"
