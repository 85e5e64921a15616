"""`cronledger doctor`: check the installation, and name a remedy for each problem."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from threading import Timer

import click
import psycopg

from cronledger.cli.ledgers import every, is_chosen
from cronledger.cli.session import database, settings_here
from cronledger.cli.show import counted, echo, json_option, named, print_json
from cronledger.explain.doctor import DoctorContext, examine
from cronledger.explain.findings import Finding
from cronledger.explain.findings import named as listed
from cronledger.ledger.access import Access
from cronledger.ledger.connections import shutdown_socket
from cronledger.ledger.database_errors import explained
from cronledger.rules import cron
from cronledger.rules.problems import Exit
from cronledger.rules.remedies import Surface
from cronledger.settings import Settings

MARKS = {
    "ok": "ok",
    "warning": "WARNING",
    "problem": "PROBLEM",
    "unchecked": "NOT CHECKED",
}
LEDGER_SECONDS = 60.0
"""The longest time for the checks of one of several ledgers."""
MOST_AT_ONCE = 16


@click.command()
@json_option
@click.option("--all", "of_all", is_flag=True, help="Check each ledger of the ledgers file.")
@click.option("-v", "--verbose", is_flag=True, help="Also print the checks without a problem.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def doctor(*, as_json: bool, of_all: bool, verbose: bool, strict: bool) -> None:
    """Check the installation, and name a remedy for each problem. Changes nothing.

    The checks run from this host with the current role. They cover the connection, the server, the
    schema, clocks, time zone data, partitions, runners and jobs.

    With --all, the ledgers are checked at the same time, each for at most 60 s. A ledger whose
    database is away has this as its finding, and the others are checked all the same.

    Exit status: 0 if no check found a problem; 1 for a problem or a check that could not be made,
    and with --strict also for a warning; 4 if the problem is the schema; 5 if this is a different
    database than the one of the ledger. With --all, it is the highest status of a ledger, such as 3
    for a database that is unreachable.
    """
    settings = settings_here()
    if of_all:
        _check_all(settings, as_json=as_json, verbose=verbose, strict=strict)
        return
    with database(settings) as url:
        findings = _examined(settings, url)
    if as_json:
        print_json([_row(finding) for finding in findings])
    else:
        _print(findings, verbose, settings.ledger_name)
    _exit(_status(findings, strict))


def _check_all(settings: Settings, *, as_json: bool, verbose: bool, strict: bool) -> None:
    if is_chosen():
        raise click.UsageError("--all and --ledger exclude each other; use one of them")
    ledgers = every(settings, "--all")
    found = _of_each(ledgers)
    if as_json:
        print_json([
            {"ledger": name} | _row(one) for name, (findings, _) in found.items()
            for one in findings
        ])  # fmt: skip
    else:
        for name, (findings, _) in found.items():
            echo(f"ledger {name}")
            _print(findings, verbose, name)
    _exit(max(
        _status(findings, strict) if code is None else code for findings, code in found.values()
    ))  # fmt: skip


def _of_each(ledgers: Mapping[str, Settings]) -> dict[str, tuple[list[Finding], Exit | None]]:
    """Return the findings of each ledger by name, and the status if its database is away."""
    with ThreadPoolExecutor(min(len(ledgers), MOST_AT_ONCE), "cronledger-doctor") as pool:
        return dict(zip(ledgers, pool.map(_examined_or_away, ledgers.values()), strict=True))


def _examined_or_away(settings: Settings) -> tuple[list[Finding], Exit | None]:
    try:
        return _examined(settings, settings.require_database(), LEDGER_SECONDS), None
    except psycopg.Error as error:
        shown = explained(error, Surface.COMMAND)
        remedy = shown.remedy
        if shown.code is Exit.UNREACHABLE:
            file = settings.ledgers_file
            remedy = f"check this ledger in {file}, and check that PostgreSQL is running there"
        return [Finding("connection", "problem", shown.message, remedy)], shown.code


def _examined(settings: Settings, url: str, most_seconds: float | None = None) -> list[Finding]:
    """Return the findings of a ledger. Raises psycopg.Error, also after `most_seconds`."""
    with Access.from_settings(settings, url).connect("cronledger doctor") as connection:
        context = DoctorContext(connection, settings, url, cron.FINGERPRINT)
        if most_seconds is None:
            return examine(context)
        timer = Timer(most_seconds, shutdown_socket, [connection])
        timer.start()
        try:
            return examine(context)
        finally:
            timer.cancel()


def _row(finding: Finding) -> dict[str, object]:
    return asdict(finding) | {"remedy": _remedy(finding)}


def _print(findings: Sequence[Finding], verbose: bool, ledger: str | None) -> None:
    for finding in findings if verbose else _joined(findings):
        if verbose or finding.severity != "ok":
            echo(f"{MARKS[finding.severity]:<8} {finding.check}: {finding.found}")
            if finding.remedy is not None:
                echo(f"{'':<8} -> {_remedy(finding)}")
    count = Counter(finding.severity for finding in findings)
    unchecked = f", {count['unchecked']} not checked" if count["unchecked"] else ""
    echo(
        f"{'' if ledger is None else f'ledger {ledger}: '}"
        f"{counted(len(findings), 'finding')}: {counted(count['problem'], 'problem')}, "
        f"{counted(count['warning'], 'warning')}{unchecked}",
        err=True,
    )


def _joined(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings, and checks that could not be made as one if they have one remedy."""
    groups: dict[object, list[Finding]] = {}
    for number, one in enumerate(findings):
        groups.setdefault(one.remedy if one.severity == "unchecked" else number, []).append(one)
    for group in groups.values():
        checks = ", ".join(dict.fromkeys(one.check for one in group))
        yield replace(group[0], check=checks, found=listed(dict.fromkeys(x.found for x in group)))


def _remedy(finding: Finding) -> str | None:
    return None if finding.remedy is None else named(finding.remedy)


def _status(findings: Sequence[Finding], strict: bool) -> Exit:
    """Return the exit status that the findings of a ledger mean."""
    bad = {finding.check for finding in findings if finding.severity == "problem"}
    severities = {finding.severity for finding in findings}
    if bad & {"schema", "objects"}:
        return Exit.SCHEMA
    if "identity" in bad:
        return Exit.OTHER_DATABASE
    is_bad = bad or "unchecked" in severities or (strict and "warning" in severities)
    return Exit.FAILED if is_bad else Exit.FINE


def _exit(status: Exit) -> None:
    if status is not Exit.FINE:
        raise click.exceptions.Exit(status)
