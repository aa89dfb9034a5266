"""Django: an app for INSTALLED_APPS, with `manage.py holdfast …`, a migration, and a read-only admin.

HOLDFAST_APP in the settings is the dotted path of the site's Holdfast, e.g. "shop.jobs.app".
"""

from holdfast._distribution import require

require("holdfast.contrib.django", "django", "django")
