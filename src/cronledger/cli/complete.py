"""Shell completion with names from the ledger. Without a database it offers none, and is silent."""

import shlex
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from cronledger.ledger.reports import Reports, Row

SECONDS = 1.0
"""The longest wait for the database."""
MOST_NAMES = 200
MOST_EXECUTIONS = 20

Read = Callable[["Reports"], Sequence["Row"]]


def sources(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the files that the shell finds."""
    return [CompletionItem(incomplete, type="file")]


def jobs(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the jobs that are not retired."""
    return _names(context, lambda reports: reports.job_names(incomplete, MOST_NAMES))


def queues(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the queues in use."""
    return _names(context, lambda reports: reports.queue_names(incomplete, MOST_NAMES))


def channels(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the channels of alerts."""
    return _names(
        context,
        lambda reports: [row for row in reports.channels() if row["name"].startswith(incomplete)],
    )


def calendars(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the calendars."""
    return _names(
        context,
        lambda reports: [
            row for row in reports.all_calendars() if row["name"].startswith(incomplete)
        ],
    )


def scopes(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the scope_ids of the job that the command names before."""
    given = [context.params.get(name) for name in ("name", "job", "what")]
    # While an option has no value yet, click leaves the arguments in `args`.
    job = next((name for name in [*given, *context.args] if name), None)
    if job is None:
        return []
    return _names(context, lambda reports: reports.scope_names(job, incomplete, MOST_NAMES))


def failures(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the ids of the executions that failed last."""
    return _executions(
        context, lambda reports: reports.recent_failures(incomplete, MOST_EXECUTIONS)
    )


def running(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the ids of the executions that started last and are RUNNING."""
    return _executions(context, lambda reports: reports.running(incomplete, MOST_EXECUTIONS))


def ledgers(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the names of the ledgers file, which is read without a database."""
    from cronledger.cli.session import settings_here
    from cronledger.sources.ledgers import read_ledgers

    try:
        path = settings_here(context=context).ledgers_file
        names = [] if path is None else list(read_ledgers(path))
    except Exception:  # noqa: BLE001 - a message would disturb the line that the user types
        return []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _names(context: click.Context, read: Read) -> list[CompletionItem]:
    """Return the names, without those that a shell would have to quote."""
    names = (row["name"] for row in _rows(context, read))
    return [CompletionItem(name) for name in names if shlex.quote(name) == name]


def _executions(context: click.Context, read: Read) -> list[CompletionItem]:
    from cronledger.cli.show import cell
    from cronledger.rules.printable import clean

    fields = ("job_name", "scope_id", "plan_time", "error_code")
    return [
        CompletionItem(
            str(row["id"]), help=clean(" ".join(cell(row.get(field)) for field in fields)).strip()
        )
        for row in _rows(context, read)
    ]


def _rows(context: click.Context, read: Read) -> list["Row"]:
    """Return the rows that `read` finds within SECONDS; otherwise none, whatever the reason is."""
    from cronledger.cli.session import reports_of_running  # also before the time begins

    found: list[Row] = []

    def ask() -> None:
        try:
            with reports_of_running(context) as reports:
                found.extend(read(reports))
        except Exception:  # noqa: BLE001 - a message would disturb the line that the user types
            return

    # A thread, because nothing else ends every kind of wait, such as that for a name server.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return [] if thread.is_alive() else found
