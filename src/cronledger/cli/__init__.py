"""The command line. Commands are imported when they are called: `--help` imports click alone."""

import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

COMMANDS = {
    "run": ("run:run", "Run a replica until it is told to stop."),
    "migrate": ("migrate:migrate", "Bring the schema up to date, or say whether it is."),
    "import-crontab": ("import_crontab:import_crontab", "Turn crontabs into a cronledger.toml."),
    "next": ("next:next_firings", "Show when a schedule or a job fires next."),
    "jobs": ("jobs:jobs", "List, show, apply, compare, pause, resume and remove jobs."),
    "trigger": ("trigger:trigger", "Make one execution of a job, due now."),
    "enqueue": ("enqueue:enqueue", "Push work at a job; what is PENDING takes it up."),
    "backfill": ("backfill:backfill", "Run plan_times of the past."),
    "executions": ("executions:executions", "List, show, retry and cancel executions."),
    "queues": ("queues:queues", "List, limit, pause and resume queues."),
    "verify": ("verify:verify", "Check the ledger against the schedule history."),
    "why": ("why:why", "Say why a job ran, or did not, at an instant."),
    "doctor": ("doctor:doctor", "Look for what is wrong, with the remedy for each."),
    "accept-database": (
        "accept_database:accept_database",
        "Let replicas work in a restored or cloned database.",
    ),
    "runners": ("runners:runners", "List the replicas."),
}


class Commands(click.Group):
    """The commands of the table above; what they raise becomes an exit code and a message."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"cronledger.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # Text of the ledger may have characters that the locale has not.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # here its failure is a message; later the interpreter's
        except OSError as error:  # a full disk, a directory that is gone: not a defect of ours
            with suppress(OSError):
                if not isinstance(error, BrokenPipeError):  # the reader has what it wanted
                    click.echo(f"Error: {error}", err=True)
            _discard_output()
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, argument in enumerate(args, 1):
            _check(number, argument)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from cronledger.cli.failures import explain
            from cronledger.cli.show import echo

            failure = explain(error)
            if failure is None:
                raise
            echo(failure.text, err=True)
            ctx.exit(failure.code)


def _discard_output() -> None:
    """Let the interpreter end without another error about what it could not write."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check(number: int, argument: str) -> None:
    """Raise UsageError for an argument that no command can mean."""
    if any("\ud800" <= character <= "\udfff" for character in argument):
        raise click.UsageError(f"argument {number}, {argument!a}, is not UTF-8; write it in UTF-8")
    option, equals, value = argument.partition("=")
    empty = option if option.startswith("--") and equals and not value else None
    if not argument or empty is not None:
        named = f"argument {number} is empty" if empty is None else f"{empty} has an empty value"
        raise click.UsageError(f"{named}; leave it out, or give it a value")


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib import metadata

        click.echo(f"cronledger {metadata.version('cronledger')}")
        ctx.exit()


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="The database is CRONLEDGER_DATABASE_URL: a connection string, or `embedded`. "
    "Exit: 0 fine, 1 failed, 2 usage or configuration, 3 database unreachable, 4 schema out of "
    "date, 5 other database.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Cron for teams on PostgreSQL: every planned firing of every job is one row."""
