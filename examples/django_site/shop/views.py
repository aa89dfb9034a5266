from __future__ import annotations

import json
from typing import TYPE_CHECKING

from django.contrib import admin
from django.db import connection, transaction
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .jobs import app, send_receipt
from .models import Order

if TYPE_CHECKING:
    from django.http import HttpRequest


class CardDeclined(Exception):
    pass


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> HttpResponse:
    form = json.loads(request.body)
    try:
        with transaction.atomic():
            order = Order.objects.create(address=form["address"])
            app.sync.enqueue(connection, send_receipt.new(order.pk))
            if form.get("card") == "declined":
                raise CardDeclined  # rolls back: there is no order, and no job
    except CardDeclined:
        return HttpResponse(status=409)
    return JsonResponse({"id": order.pk}, status=201)


def show_order(_request: HttpRequest, order_id: int) -> HttpResponse:
    return JsonResponse({"receipt": get_object_or_404(Order, pk=order_id).receipt})


urlpatterns = [
    path("orders", place_order),
    path("orders/<int:order_id>", show_order),
    path("admin/", admin.site.urls),
]
