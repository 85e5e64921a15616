"""`cronledger import`: convert the jobs of another scheduler to a `cronledger.toml`."""

import click

from cronledger.cli.import_apscheduler import import_apscheduler
from cronledger.cli.import_celery import import_celery
from cronledger.cli.import_crontab import import_crontab


@click.group("import")
def imports() -> None:
    """Convert the jobs of another scheduler to a cronledger.toml."""


imports.add_command(import_apscheduler)
imports.add_command(import_celery)
imports.add_command(import_crontab)
