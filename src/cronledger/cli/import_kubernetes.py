"""`cronledger import kubernetes`: convert the CronJobs of manifests to a `cronledger.toml`."""

import click

from cronledger.cli.importing import (
    finish,
    observe_option,
    output_options,
    read_texts,
    valid_zone,
)
from cronledger.settings import OfflineSettings
from cronledger.sources.kubernetes import Options, read_manifests


@click.command("kubernetes")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@output_options
@observe_option
@click.option(
    "--timezone", metavar="ZONE", default="UTC", show_default=True,
    help="Time zone of schedules without timeZone.",
)  # fmt: skip
def import_kubernetes(
    *, files: tuple[str, ...], output: str | None, force: bool, observe: bool, timezone: str
) -> None:
    """Convert CronJobs of Kubernetes to a cronledger.toml.

    FILE is a manifest, a list, the output of `helm template`, or - for standard input, as in
    `kubectl get cronjobs -A -o yaml | cronledger import kubernetes -`. Other kinds of objects are
    ignored. Only the current user can read the file of --output.

    With --observe, Kubernetes keeps the CronJobs, and their pods report the runs. The output
    contains observed jobs, and the comment of each job has a patch for its CronJob.

    Exit status: 0 if every CronJob has an equivalent, 1 if a part of one has none, 2 for a usage
    error.
    """
    options = Options(valid_zone(timezone), OfflineSettings.load().web_redact, observe)
    found = read_texts(files, lambda texts: read_manifests(texts, options))
    finish(found, output, force=force, observe=observe)
