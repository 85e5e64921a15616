"""The configuration of the Django app."""

from django.apps import AppConfig
from django.core import checks

from cronledger.contrib.django.checks import check_project
from cronledger.rules.remedies import PROGRAM


class CronledgerConfig(AppConfig):
    """The app `cronledger` of Django."""

    name = "cronledger.contrib.django"
    label = "cronledger"
    verbose_name = "cronledger"

    def ready(self) -> None:
        """Register the system checks, and the name of the commands for remedies."""
        checks.register(check_project)
        PROGRAM.name = "manage.py cronledger"
