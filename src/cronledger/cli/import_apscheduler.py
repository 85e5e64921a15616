"""`cronledger import apscheduler`: convert the jobs of an APScheduler to a `cronledger.toml`."""

from datetime import UTC, datetime

import click

from cronledger.cli.importing import finish, observe_option, output_options
from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.sources import apscheduler_jobs
from cronledger.sources.python import load_instance

EXAMPLE = "myproject.jobs:scheduler"


@click.command("apscheduler")
@click.argument("scheduler", metavar="SCHEDULER|FILE.json")
@output_options
@observe_option
def import_apscheduler(*, scheduler: str, output: str | None, force: bool, observe: bool) -> None:
    """Convert the jobs of an APScheduler to a cronledger.toml.

    SCHEDULER is the scheduler object of a program, as package.module:name. FILE.json is the file
    that `scheduler.export_jobs()` of a running program wrote; it also contains the jobs of
    persistent job stores, which only a running scheduler reads. Both execute code of the program,
    so the command runs in its environment. It reads APScheduler 3.

    Each job calls the function of its job with the same arguments. Jobs without an equivalent,
    such as paused ones, lambdas and triggers of your own, are reported on standard error, and stay
    in the output as comments.

    With --observe, the scheduler keeps its jobs, and its program reports their runs. The output
    contains observed jobs, and the comment of each job has an item for the mapping of the program.

    Exit status: 0 if every job has an equivalent, 1 if not, 2 for a usage error.
    """
    now = datetime.now(UTC)  # noqa: TID251 - a date before it is left out
    jobs = _exported(scheduler) if scheduler.endswith(".json") else _of_program(scheduler)
    if not jobs:
        message = "the scheduler has no jobs"
        remedy = "name the object to which the jobs are added, or a file of export_jobs()"
        raise ConfigurationError([Problem(where=scheduler, message=message, remedy=remedy)])
    found = apscheduler_jobs.convert(scheduler, jobs, now, observe=observe)
    finish(found, output, force=force, observe=observe)


def _of_program(reference: str) -> list[apscheduler_jobs.ForeignJob]:
    _require_version_3()
    from apscheduler.schedulers.base import BaseScheduler

    found = load_instance(reference, BaseScheduler, EXAMPLE)
    return apscheduler_jobs.jobs_of(found)


def _exported(path: str) -> list[apscheduler_jobs.ForeignJob]:
    _require_version_3()
    try:
        return apscheduler_jobs.jobs_of_export(path)
    except Exception as error:  # noqa: BLE001 - the file contains pickled objects
        message = f"cannot be read: {type(error).__name__}: {error}"
    remedy = "use a file that scheduler.export_jobs() of APScheduler 3.11 wrote"
    raise ConfigurationError([Problem(where=path, message=message, remedy=remedy)])


def _require_version_3() -> None:
    from importlib import metadata

    try:
        version = metadata.version("apscheduler")
    except metadata.PackageNotFoundError:
        message = "APScheduler is not installed in this environment"
        remedy = "install cronledger in the environment of the program"
        raise ConfigurationError([Problem(message=message, remedy=remedy)]) from None
    if not version.startswith("3."):
        message = f"APScheduler {version} is not supported; only 3.x is, because 4 is a pre-release"
        remedy = "export the jobs from a program with APScheduler 3"
        raise ConfigurationError([Problem(message=message, remedy=remedy)])
