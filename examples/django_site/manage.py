"""A shop on Django. An order and the job that mails its receipt are committed together.

createdb shop && export PGDATABASE=shop
python manage.py migrate && python manage.py runserver    (and beside it: python manage.py holdfast worker)
"""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
