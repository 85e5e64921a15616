"""`cronledger import celery`: convert the entries of Celery beat to a `cronledger.toml`."""

from typing import TYPE_CHECKING

import click
import psycopg

from cronledger.cli.importing import finish, observe_option, output_options
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.sources import celery_beat
from cronledger.sources.foreign_values import NoEquivalentError
from cronledger.sources.python import load_instance, require_package

if TYPE_CHECKING:
    from celery import Celery

    from cronledger.sources.celery_beat import BeatEntry

EXAMPLE = "myproject.celery:app"


@click.command("celery")
@click.argument("app", metavar="APP")
@output_options
@observe_option
@click.option(
    "--tables", "url", metavar="URL",
    help="Read the tables of django_celery_beat in this PostgreSQL database.",
)  # fmt: skip
def import_celery(
    *, app: str, url: str | None, output: str | None, force: bool, observe: bool
) -> None:
    """Convert the entries of Celery beat to a cronledger.toml.

    APP is the Celery app, as package.module:name. The command imports this module and the tasks of
    the app, which executes their code, so it runs in the environment of the project. It reads the
    `beat_schedule` of the app. With --tables, it imports nothing of the project, and reads the rows
    of django_celery_beat instead; APP is then only written into the jobs.

    Each job sends the message of its entry, as beat did, and Celery's workers run the task. Entries
    without an equivalent, such as solar schedules, are reported on standard error, and stay in the
    output as comments.

    With --observe, beat still sends the messages, and the workers report the runs. The output
    contains observed jobs, and the comment of each job has a header for its entry.

    Exit status: 0 if every entry has an equivalent, 1 if not, 2 for a usage error.
    """
    source = app if url is None else "django_celery_beat"
    entries = _of_app(app) if url is None else _of_tables(app, url)
    found = celery_beat.convert(app, source, entries, observe=observe)
    finish(found, output, force=force, observe=observe)


def _of_app(reference: str) -> "list[BeatEntry]":
    found = load_instance(reference, _require_celery(), EXAMPLE)
    try:
        return celery_beat.entries_of(found)
    except NoEquivalentError as error:
        message = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - modules of the user
        message = f"the app cannot be read: {type(error).__name__}: {error}"
    raise ConfigurationError([Problem(where=reference, message=message)])


def _of_tables(reference: str, url: str) -> "list[BeatEntry]":
    _require_celery()
    require_package(reference)
    try:
        return celery_beat.entries_of_tables(url)
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
        message = f"{error.diag.message_primary}; name the database of the Django project"
    except psycopg.Error as error:
        message = f"the database cannot be read: {str(error).splitlines()[0]}"
    raise ConfigurationError([Problem(field="--tables", message=message)])


def _require_celery() -> "type[Celery]":
    try:
        from celery import Celery
    except ImportError:
        message = "Celery is not installed in this environment"
        remedy = "install cronledger in the environment of the project"
        raise ConfigurationError([Problem(message=message, remedy=remedy)]) from None
    kind: type[Celery] = Celery
    return kind
