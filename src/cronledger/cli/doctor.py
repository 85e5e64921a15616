"""`cronledger doctor`: check the installation, and name a remedy for each problem."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from cronledger.cli.session import database, settings_here
from cronledger.cli.show import counted, echo, json_option, named, print_json
from cronledger.explain.doctor import DoctorContext, examine
from cronledger.explain.findings import Finding
from cronledger.ledger.access import Access
from cronledger.rules import cron
from cronledger.rules.problems import Exit

MARKS = {
    "ok": "ok",
    "warning": "WARNING",
    "problem": "PROBLEM",
    "unchecked": "NOT CHECKED",
}


@click.command()
@json_option
@click.option("--all", "every", is_flag=True, help="Also print the checks that found no problem.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
def doctor(*, as_json: bool, every: bool, strict: bool) -> None:
    """Check the installation, and name a remedy for each problem. Changes nothing.

    The checks run from this host with the current role. They cover the connection, the server, the
    schema, clocks, time zone data, partitions, runners and jobs.

    Exit status: 0 if no check found a problem; 1 for a problem or a check that could not be made,
    and with --strict also for a warning; 4 if the problem is the schema; 5 if this is a different
    database than the one of the ledger.
    """
    settings = settings_here()
    with (
        database(settings) as url,
        Access.from_settings(settings, url).connect("cronledger doctor") as c,
    ):
        findings = examine(DoctorContext(c, settings, url, cron.FINGERPRINT))
    if as_json:
        print_json([asdict(finding) | {"remedy": _remedy(finding)} for finding in findings])
    else:
        _print(findings, every, settings.ledger_name)
    _require_sound(findings, strict)


def _print(findings: Sequence[Finding], every: bool, ledger: str | None) -> None:
    for finding in findings:
        if every or finding.severity != "ok":
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


def _remedy(finding: Finding) -> str | None:
    return None if finding.remedy is None else named(finding.remedy)


def _require_sound(findings: Sequence[Finding], strict: bool) -> None:
    """Exit unless no check found a problem."""
    bad = {finding.check for finding in findings if finding.severity == "problem"}
    severities = {finding.severity for finding in findings}
    if bad & {"schema", "objects"}:
        raise click.exceptions.Exit(Exit.SCHEMA)
    if "identity" in bad:
        raise click.exceptions.Exit(Exit.OTHER_DATABASE)
    if bad or "unchecked" in severities or (strict and "warning" in severities):
        raise click.exceptions.Exit(Exit.FAILED)
