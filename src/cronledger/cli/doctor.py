"""`cronledger doctor`: check the installation, and name a remedy for each problem."""

from collections import Counter

import click

from cronledger.cli.show import echo, json_option, print_json

MARKS = {
    "ok": "ok",
    "warning": "WARNING",
    "problem": "PROBLEM",
    "unchecked": "NOT CHECKED",
}


@click.command()
@json_option
@click.option("--all", "every", is_flag=True, help="Also print the checks that found no problem.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings too.")
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
    from cronledger.rules.problems import Exit

    settings = settings_here()
    with (
        database(settings) as url,
        Access.from_settings(settings, url).connect("cronledger doctor") as c,
    ):
        findings = examine(DoctorContext(c, settings, url, cron.FINGERPRINT))
    bad = {finding.check for finding in findings if finding.severity == "problem"}
    count = Counter(finding.severity for finding in findings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            if every or finding.severity != "ok":
                echo(f"{MARKS[finding.severity]:<8} {finding.check}: {finding.found}")
                if finding.remedy is not None:
                    echo(f"{'':<8} -> {finding.remedy}")
        unchecked = f", {count['unchecked']} not checked" if count["unchecked"] else ""
        echo(
            f"{len(findings)} findings: {count['problem']} problems, {count['warning']} warnings"
            f"{unchecked}",
            err=True,
        )
    if bad & {"schema", "objects"}:
        raise click.exceptions.Exit(Exit.SCHEMA)
    if "identity" in bad:
        raise click.exceptions.Exit(Exit.OTHER_DATABASE)
    if bad or count["unchecked"] or (strict and count["warning"]):
        raise click.exceptions.Exit(Exit.FAILED)
