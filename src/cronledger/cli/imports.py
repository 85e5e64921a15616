"""`cronledger import`: convert the jobs of another scheduler to a `cronledger.toml`."""

import click

from cronledger.cli.import_crontab import import_crontab
from cronledger.cli.import_kubernetes import import_kubernetes


@click.group("import")
def imports() -> None:
    """Convert the jobs of another scheduler to a cronledger.toml."""


for command in (import_crontab, import_kubernetes):
    imports.add_command(command)
