"""The app's configuration in a Django site."""

from __future__ import annotations

from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from holdfast.contrib._handlers import wrap_handlers
from holdfast.contrib.django._application import FreshConnections, application


class HoldfastConfig(AppConfig):
    name = "holdfast.contrib.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Import `jobs.py` and tasks of every installed app, so that every handler is registered."""
        autodiscover_modules("jobs")
        if find_spec("django.tasks") or find_spec("django_tasks"):
            from holdfast.contrib.django.tasks import register_tasks

            register_tasks(application())
        wrap_handlers(application(), FreshConnections())
