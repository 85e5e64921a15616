"""Command lines that files of deploy/ have, read by the command line of the product."""

import click

from cronledger.cli import main


def parsed(*words: str) -> click.Context:
    """Return what `cronledger WORDS` would run. Raises click.UsageError for a wrong one."""
    with click.Context(main, info_name="cronledger") as context:
        command = main.get_command(context, words[0])
        if command is None:
            raise click.UsageError(f"there is no command {words[0]}")
        return command.make_context(words[0], [*words[1:]], parent=context)
