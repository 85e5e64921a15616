"""The ledger in the test databases that Django creates.

Django's runner: `TEST_RUNNER = "cronledger.contrib.django.testing.LedgerRunner"`. pytest-django: a
fixture `django_db_setup` that requests the one of pytest-django within `ledgers_in_test_databases`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any
from unittest.mock import patch

from django.apps import apps
from django.core.management import call_command
from django.db.models.signals import post_migrate
from django.test.runner import DiscoverRunner

from cronledger.contrib.django import options
from cronledger.contrib.django.database import dsn
from cronledger.settings import PREFIX


@contextmanager
def ledgers_in_test_databases() -> Iterator[None]:
    """Within the block, create the ledger in each test database of the alias of the ledger.

    The ledger gets the jobs of the project. Copies for parallel tests have them, too. A database
    that CRONLEDGER_DATABASE_URL names is not touched. Raises CommandError, for example for an
    invalid job.
    """

    def created(using: str, **_: Any) -> None:
        if using != options.alias():
            return
        with patch.dict(os.environ, {f"{PREFIX}DATABASE_URL": dsn(using)}):
            for command in (("migrate",), ("jobs", "apply")):
                call_command("cronledger", *command, stdout=StringIO())

    sender = apps.get_app_config("cronledger")
    post_migrate.connect(created, sender=sender)
    try:
        yield
    finally:
        post_migrate.disconnect(created, sender=sender)


class LedgerRunner(DiscoverRunner):
    """Django's runner, whose test database has the ledger."""

    def setup_databases(self, **kwargs: Any) -> Any:
        """Create the test databases, and the ledger in that of its alias."""
        with ledgers_in_test_databases():
            return super().setup_databases(**kwargs)
