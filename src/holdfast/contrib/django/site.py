"""The Holdfast of the Django site given by DJANGO_SETTINGS_MODULE, for `holdfast worker`."""

from __future__ import annotations

import django

from holdfast.contrib.django._application import application

django.setup()
app = application()
