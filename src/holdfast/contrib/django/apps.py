"""The app's configuration in a Django site."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib._handlers import wrap_handlers
from holdfast.contrib.django._application import FreshConnections, application


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import `jobs.py` of every installed app, so that every handler is registered."""
        autodiscover_modules("jobs")
        wrap_handlers(application(), FreshConnections())
