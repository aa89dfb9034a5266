"""The names of `django.tasks`, from Django 6 or from its backport."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.tasks import TaskContext, TaskResultStatus, task
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django.tasks import TaskContext, TaskResultStatus, task
        from django.tasks.exceptions import TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
    except ModuleNotFoundError:
        from django_tasks import TaskContext, TaskResultStatus, task
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = [
    "TaskContext",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "task",
    "task_enqueued",
    "task_finished",
    "task_started",
]
