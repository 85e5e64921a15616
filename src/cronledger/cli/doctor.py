"""`cronledger doctor`: check the installation, and name a remedy for each problem."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cronledger.cli.show import counted, echo, json_option, print_json

if TYPE_CHECKING:
    from cronledger.explain.findings import Finding

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
    from dataclasses import asdict

    from cronledger.cli.session import database, settings_here
    from cronledger.explain.doctor import DoctorContext, examine
    from cronledger.ledger.access import Access
    from cronledger.rules import cron

    settings = settings_here()
    with (
        database(settings) as url,
        Access.from_settings(settings, url).connect("cronledger doctor") as c,
    ):
        findings = examine(DoctorContext(c, settings, url, cron.FINGERPRINT))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings, every)
    _require_sound(findings, strict)


def _print(findings: "Sequence[Finding]", every: bool) -> None:
    for finding in findings:
        if every or finding.severity != "ok":
            echo(f"{MARKS[finding.severity]:<8} {finding.check}: {finding.found}")
            if finding.remedy is not None:
                echo(f"{'':<8} -> {finding.remedy}")
    count = Counter(finding.severity for finding in findings)
    unchecked = f", {count['unchecked']} not checked" if count["unchecked"] else ""
    echo(
        f"{counted(len(findings), 'finding')}: {counted(count['problem'], 'problem')}, "
        f"{counted(count['warning'], 'warning')}{unchecked}",
        err=True,
    )


def _require_sound(findings: "Sequence[Finding]", strict: bool) -> None:
    """Exit unless no check found a problem."""
    from cronledger.rules.problems import Exit

    bad = {finding.check for finding in findings if finding.severity == "problem"}
    severities = {finding.severity for finding in findings}
    if bad & {"schema", "objects"}:
        raise click.exceptions.Exit(Exit.SCHEMA)
    if "identity" in bad:
        raise click.exceptions.Exit(Exit.OTHER_DATABASE)
    if bad or "unchecked" in severities or (strict and "warning" in severities):
        raise click.exceptions.Exit(Exit.FAILED)
