"""The system check of the Django app, which `manage.py check` runs."""

import os
from typing import Any

from django.core import checks

from cronledger.contrib.django import options
from cronledger.contrib.django.database import dsn
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import PREFIX


def check_project(**_: Any) -> list[checks.CheckMessage]:
    """Return an error for each problem of the setting CRONLEDGER and of its database."""
    try:
        alias = options.alias()
        if not os.environ.get(f"{PREFIX}DATABASE_URL"):
            dsn(alias)
    except ConfigurationError as error:
        return errors_of(error)
    return []


def errors_of(error: ConfigurationError) -> list[checks.CheckMessage]:
    """Return the problems of an error as messages of Django's checks."""
    return [checks.Error(str(problem), id="cronledger.E001") for problem in error.problems]
