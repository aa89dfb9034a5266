"""The Holdfast of the Django site that DJANGO_SETTINGS_MODULE names, for `holdfast worker`."""

from __future__ import annotations

import django

from holdfast.contrib.django.application import application

django.setup()
app = application()
