"""`cronledger import github-actions`: convert schedules of workflows to a `cronledger.toml`."""

import re

import click

from cronledger.cli.importing import finish, output_options, read_texts
from cronledger.sources.github_actions import API, Options, read_workflows

_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


@click.command("github-actions")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--repository", metavar="OWNER/NAME", required=True, help="Repository on GitHub.")
@click.option(
    "--ref", metavar="BRANCH", default="main", show_default=True,
    help="Branch or tag whose workflow runs.",
)  # fmt: skip
@click.option(
    "--api", metavar="URL", default=API, show_default=True,
    help="Address of the API, such as that of a GitHub Enterprise server.",
)  # fmt: skip
@output_options
def import_github_actions(
    *,
    files: tuple[str, ...],
    repository: str,
    ref: str,
    api: str,
    output: str | None,
    force: bool,
) -> None:
    """Convert schedules of GitHub Actions to a cronledger.toml.

    FILE is a workflow, such as .github/workflows/nightly.yml, or - for standard input. A schedule
    becomes a job that dispatches the workflow, with a token from the variable GITHUB_TOKEN of the
    replicas. Only the current user can read the file of --output.

    Exit status: 0 if every schedule has an equivalent, 1 if a part of one has none, 2 for a usage
    error.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise click.BadParameter(
            f"{repository!r} is not the name of a repository; write it like acme/shop",
            param_hint="--repository",
        )
    options = Options(repository, ref, api.rstrip("/"))
    finish(read_texts(files, lambda texts: read_workflows(texts, options)), output, force=force)
