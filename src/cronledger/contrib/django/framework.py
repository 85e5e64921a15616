"""The task framework: `django.tasks` of Django 6, or its backport `django_tasks`.

The backport is used with Django 5.2. With Django 6 it is ignored, even if it is installed.
"""

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ModuleNotFoundError as error:
    if error.name != "django.tasks":
        raise
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, exceptions
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    # 0.12 has this name; later versions have Django's.
    InvalidTask = getattr(exceptions, "InvalidTaskError", None) or exceptions.InvalidTask

__all__ = [
    "BaseTaskBackend", "InvalidTask", "Task", "TaskContext", "TaskError", "TaskResult",
    "TaskResultDoesNotExist", "TaskResultStatus", "normalize_json", "task_enqueued",
    "task_finished", "task_started",
]  # fmt: skip
