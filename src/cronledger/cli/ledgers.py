"""The ledgers of a file: the one that `--ledger` names, or all of them."""

from pathlib import Path
from typing import Any

import click

from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import Settings
from cronledger.sources.ledgers import read_ledgers, settings_of


def chosen(settings: Settings, context: click.Context | None = None) -> Settings:
    """Return the settings of the ledger that `--ledger` names, otherwise `settings`.

    `context`: by default that of the command. Raises ConfigurationError, and UsageError for an
    unknown name.
    """
    if (path := _option("ledgers_file", context)) is not None:
        settings = settings.model_copy(update={"ledgers_file": Path(path)})
    if (name := _option("ledger", context)) is None:
        return settings
    path = _file(settings, "--ledger")
    entries = read_ledgers(path)
    if name not in entries:
        raise click.UsageError(
            f"{path} has no ledger {name!r}; use one of {', '.join(sorted(entries))}"
        )
    return settings_of(path, name, entries[name], settings)


def every(settings: Settings, option: str) -> dict[str, Settings]:
    """Return the settings of all ledgers by name, in the order of the file.

    `option` needs the file. Raises ConfigurationError with the problems of all, and UsageError.
    """
    path = _file(settings, option)
    problems: list[Problem] = []
    found = {}
    for name, entry in read_ledgers(path).items():
        try:
            found[name] = settings_of(path, name, entry, settings)
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(problems)
    return found


def is_chosen() -> bool:
    """Return whether `--ledger` names a ledger."""
    return _option("ledger", None) is not None


def refuse_choice(command: str, or_else: str = "") -> None:
    """Raise UsageError if `--ledger` names a ledger, which this command does not use."""
    if (name := _option("ledger", None)) is not None:
        raise click.UsageError(f"`{command}` works without a ledger; omit --ledger {name}{or_else}")


def _option(name: str, context: click.Context | None) -> Any:
    """Return the value of an option of the whole program; None: it is not given."""
    context = context or click.get_current_context(silent=True)
    return None if context is None else context.find_root().params.get(name)


def _file(settings: Settings, option: str) -> Path:
    if settings.ledgers_file is None:
        raise click.UsageError(
            f"{option} needs the file with the ledgers; set CRONLEDGER_LEDGERS_FILE, or write "
            "--ledgers-file PATH before the command"
        )
    return settings.ledgers_file
