"""`cronledger doctor`: what is wrong, each with its remedy."""

import click

from cronledger.cli.show import echo, json_option, print_json

MARKS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM"}


@click.command()
@json_option
@click.option("--all", "every", is_flag=True, help="Print what is well, too.")
def doctor(*, as_json: bool, every: bool) -> None:
    """Look for what is wrong, with the remedy for each; nothing is changed.

    Looks from this host, with this role: at the connection, the server, the schema, clocks and time
    zone data, partitions, runners, jobs. Exit 0 without a problem (warnings are none), 1 with any;
    4 when it is the schema, 5 when this is another database than the ledger's own.
    """
    from dataclasses import asdict

    from cronledger.audit.doctor import Patient, examine
    from cronledger.cli.session import access, database, settings_here
    from cronledger.rules import cron
    from cronledger.rules.errors import Exit

    settings = settings_here()
    with database(settings) as url, access(settings, url).connect("cronledger doctor") as c:
        findings = examine(Patient(c, settings, url, cron.FINGERPRINT))
    bad = {finding.check for finding in findings if finding.severity == "problem"}
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            if every or finding.severity != "ok":
                echo(f"{MARKS[finding.severity]:<8} {finding.check}: {finding.found}")
                if finding.remedy is not None:
                    echo(f"{'':<8} -> {finding.remedy}")
        warnings = sum(finding.severity == "warning" for finding in findings)
        problems = sum(finding.severity == "problem" for finding in findings)
        echo(f"{len(findings)} findings: {problems} problems, {warnings} warnings", err=True)
    if "schema" in bad:
        raise click.exceptions.Exit(Exit.SCHEMA)
    if "identity" in bad:
        raise click.exceptions.Exit(Exit.OTHER_DATABASE)
    if bad:
        raise click.exceptions.Exit(Exit.FAILED)
