"""The app's place in a Django site."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib.django.application import application
from holdfast.contrib.django.connections import FreshConnections
from holdfast.contrib.handlers import wrap_handlers


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import `jobs.py` of every installed app, so that every handler is known."""
        autodiscover_modules("jobs")
        wrap_handlers(application(), FreshConnections())
