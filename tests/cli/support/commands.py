"""Every command of the command line."""

import click

from cronledger.cli import main
from docs.tools import commands as documented


def commands() -> dict[str, click.Command]:
    """Return the commands by their words, such as `jobs list`."""
    root = click.Context(main, info_name="cronledger")
    found = documented.commands(root)
    return {x.command_path.removeprefix("cronledger "): x.command for x in found}
