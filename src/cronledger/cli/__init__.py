"""The command line. A command is imported when it is called, so `--help` imports only click."""

import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

COMMANDS = {
    "run": ("run:run", "Run a replica until it receives a stop signal."),
    "dev": ("dev:dev", "Run jobs on a temporary database; restart on changes."),
    "migrate": ("migrate:migrate", "Apply pending migrations, or check for them."),
    "import": ("imports:imports", "Convert the jobs of other schedulers to a cronledger.toml."),
    "next": ("next:next_firings", "Show when a schedule or a job fires next."),
    "forecast": ("forecast:forecast", "Show what the schedules will do in the coming days."),
    "check": ("check:check", "Check files and Apps, and show when their jobs fire."),
    "schema": ("schema:schema", "Print the JSON Schema of cronledger.toml."),
    "jobs": ("jobs:jobs", "List, show, apply, compare, pause, resume and remove jobs."),
    "trigger": ("trigger:trigger", "Create one execution of a job, due now."),
    "skip": ("skip:skip", "Skip coming firings of a job, or undo that."),
    "planned-skips": ("skip:planned_skips", "List the firings that operators skip."),
    "enqueue": ("enqueue:enqueue", "Enqueue work for a job."),
    "backfill": ("backfill:backfill", "Run past plan_times of a job."),
    "progress": ("progress:progress", "Report the progress of the execution that calls it."),
    "observe": ("observe:observe", "Run a command of another scheduler, and report its run."),
    "adopt": ("adopt:adopt", "Move an observed job to replicas at one instant, or back."),
    "report-tokens": (
        "report_tokens:report_tokens",
        "Create, list and revoke tokens for reports over HTTP.",
    ),
    "executions": ("executions:executions", "List, show, retry and cancel executions."),
    "pauses": ("pauses:pauses", "List, plan, change and end pauses of jobs."),
    "queues": ("queues:queues", "List, limit, pause and resume queues."),
    "calendars": ("calendars:calendars", "List, show and compare calendars."),
    "retention": ("retention:retention", "Show and set how long executions are kept."),
    "sources": ("sources:sources", "List the files and Apps that were applied; rename one."),
    "alerts": ("alerts:alerts", "List alerts, or the open states."),
    "channels": ("channels:channels", "List, test, pause and resume the channels of alerts."),
    "audit": ("audit:audit", "List who did what to jobs, queues and executions."),
    "deadlines": ("deadlines:deadlines", "List missed deadlines."),
    "compliance": ("deadlines:compliance", "List how many deadlines were met each month."),
    "verify": ("verify:verify", "Check the ledger against the schedule history."),
    "why": ("why:why", "Explain why a job ran, or did not run, at a given time."),
    "doctor": ("doctor:doctor", "Check the installation, and name a remedy for each problem."),
    "accept-database": (
        "accept_database:accept_database",
        "Allow replicas to work in a restored or cloned database.",
    ),
    "refuse-database": (
        "accept_database:refuse_database",
        "Start nothing in a copy until it is accepted.",
    ),
    "runners": ("runners:runners", "List the replicas."),
    "hosts": ("hosts:hosts", "List and retire the hosts of replicas."),
    "metrics": ("metrics:metrics", "Print or serve the metrics of the ledger for Prometheus."),
    "web": ("web:web", "Serve the web page."),
}
WITHOUT_LEDGER = frozenset({"check", "dev", "schema"})
"""The commands that use no ledger of their caller. `import` is not here, because `import pg_cron
--history` uses one."""


class Commands(click.Group):
    """Loads the commands of `COMMANDS`; turns exceptions into a message and an exit code."""

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
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        # Text from the ledger may contain characters that the locale cannot encode.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # otherwise a failed flush ends in a traceback
        except OSError as error:  # such as a full disk: not a defect, so no traceback
            with suppress(OSError):
                if not isinstance(error, BrokenPipeError):  # the reader has read enough
                    click.echo(f"Error: {error}", err=True)
            _discard_output()
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # the shell completes an unfinished line
            own = args[: args.index("--")] if "--" in args else args
            own = own if "observe" in own else args  # the words of its command may be empty
            for number, argument in enumerate(own, 1):
                _check(number, argument)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from cronledger.cli.show import named

            vars(error)["message"] = named(error.message)  # Final for type checkers
            raise
        except (click.exceptions.Exit, click.Abort):
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
    """Discard unwritten output, so that the interpreter does not report it again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check(number: int, argument: str) -> None:
    """Raise UsageError if an argument is empty or is not UTF-8."""
    if any("\ud800" <= character <= "\udfff" for character in argument):
        raise click.UsageError(f"argument {number}, {argument!a}, is not UTF-8; encode it as UTF-8")
    option, equals, value = argument.partition("=")
    empty = option if option.startswith("--") and equals and not value else None
    if not argument or empty is not None:
        named = f"argument {number} is empty" if empty is None else f"{empty} has an empty value"
        raise click.UsageError(f"{named}; omit it, or give it a value")


def _ledgers(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
    from cronledger.cli import complete

    return complete.ledgers(context, parameter, incomplete)


@click.command(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
    epilog="CRONLEDGER_DATABASE_URL names the database: a connection string, or `embedded`. "
    "Exit status: 0 success, 1 failure, 2 usage or configuration error, 3 database unreachable, "
    "4 schema out of date, 5 a different database than expected.",
)
@click.version_option(
    package_name="cronledger", prog_name="cronledger", message="%(prog)s %(version)s"
)
@click.option(
    "--ledger", metavar="NAME", shell_complete=_ledgers,
    help="Work on this ledger of the ledgers file.",
)  # fmt: skip
@click.option(
    "--ledgers-file", metavar="PATH", type=click.Path(dir_okay=False),
    help="File with the table `ledgers` [default: CRONLEDGER_LEDGERS_FILE].",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context, *, ledger: str | None, ledgers_file: str | None) -> None:
    """Cron for teams on PostgreSQL: each planned firing of a job is one row of a table."""
    # `ledgers.chosen` reads the options where a command reads its settings.
    if ledger is not None and ctx.invoked_subcommand in WITHOUT_LEDGER:
        from cronledger.cli.ledgers import refuse_choice

        refuse_choice(ctx.invoked_subcommand)
