"""`cronledger import`: convert the jobs of another scheduler to a `cronledger.toml`."""

import click

from cronledger.cli.import_apscheduler import import_apscheduler
from cronledger.cli.import_celery import import_celery
from cronledger.cli.import_crontab import import_crontab
from cronledger.cli.import_github_actions import import_github_actions
from cronledger.cli.import_kubernetes import import_kubernetes
from cronledger.cli.import_pg_cron import import_pg_cron
from cronledger.cli.import_systemd import import_systemd
from cronledger.cli.ledgers import refuse_choice


@click.group("import")
@click.pass_context
def imports(context: click.Context) -> None:
    """Convert the jobs of another scheduler to a cronledger.toml."""
    if context.invoked_subcommand != import_pg_cron.name:  # --history reports to a ledger
        refuse_choice(f"import {context.invoked_subcommand}")


for command in (
    import_crontab, import_kubernetes, import_systemd, import_pg_cron, import_github_actions,
    import_celery, import_apscheduler,
):  # fmt: skip
    imports.add_command(command)
