"""The configuration of the Django app."""

from django.apps import AppConfig
from django.core import checks

from cronledger.contrib.django.checks import check_project


class CronledgerConfig(AppConfig):
    """The app `cronledger` of Django."""

    name = "cronledger.contrib.django"
    label = "cronledger"
    verbose_name = "cronledger"

    def ready(self) -> None:
        """Register the system checks."""
        checks.register(check_project)
