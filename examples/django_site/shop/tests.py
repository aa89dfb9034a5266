"""`manage.py test` makes a test database, and Holdfast's schema in it."""

from __future__ import annotations

from django.test import TestCase

from holdfast.contrib.django.models import Job


class Orders(TestCase):
    def test_an_order_comes_with_a_job(self) -> None:
        answer = self.client.post("/orders", {"address": "ada@example.org"}, "application/json")
        self.assertEqual(answer.status_code, 201)
        self.assertEqual([job.payload for job in Job.objects.all()], [{"order_id": answer.json()["id"]}])

    def test_a_declined_card_leaves_nothing(self) -> None:
        answer = self.client.post("/orders", {"address": "ada@example.org", "card": "declined"}, "application/json")
        self.assertEqual(answer.status_code, 409)
        self.assertFalse(Job.objects.exists())
