"""The jobs of imported crontabs as tables of a `cronledger.toml`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cronledger.rules import durations
from cronledger.rules.cron_fields import REBOOT
from cronledger.rules.field_types import NO_LIMIT
from cronledger.sources import crontab_observed, observed
from cronledger.sources.crontab import Imported, ImportedJob, Options
from cronledger.sources.crontab_mail import Mail, channel_names
from cronledger.sources.imported import (
    LEASE_HEADER,
    Entry,
    Import,
    Note,
    Source,
    Table,
    lease,
)

BOOT_GRACE = "10m"
"""A host may take minutes to boot, until its replica has started."""


def convert(crontabs: Sequence[Imported], options: Options) -> Import:
    """Return the tables of the jobs and channels, and the notes."""
    names = channel_names(job.mail for crontab in crontabs for job in crontab.jobs)
    return Import(
        "crontab",
        tuple(_source(crontab, options, names) for crontab in crontabs),
        header(options, mails=bool(names)),
        {name: channel(mail) for mail, name in names.items()},
    )


def _source(crontab: Imported, options: Options, channels: Mapping[Mail, str]) -> Source:
    jobs = {job.line: job for job in crontab.jobs}
    lines = {note.line: note.text for note in crontab.notes}
    lines |= {line: job.text for line, job in jobs.items()}
    entries = tuple(
        Entry(
            f"{crontab.file}:{line}",
            text,
            {jobs[line].name: table_of(jobs[line], options, channels)} if line in jobs else {},
            tuple(Note(note.message, note.kind) for note in crontab.notes if note.line == line),
            crontab_observed.line(jobs[line], jobs[line].name) if line in jobs else "",
        )
        for line, text in sorted(lines.items())
    )
    return Source(crontab.file, entries, f"{crontab.format} format")


def header(options: Options, *, mails: bool) -> list[str]:
    """Return sentences about the policies of all jobs."""
    if options.observe:
        return [*observed.HEADER, crontab_observed.HEADER]
    overlap = (
        'overlap = "allow": as in cron, a run starts while an earlier one still runs.'
        if options.faithful
        else 'overlap = "skip": a run is skipped and recorded if an earlier one still runs. Cron '
        'starts it: use overlap = "allow", or import with --faithful.'
    )
    return [
        overlap,
        f'run_timeout = "{NO_LIMIT}": as in cron, a run may take any time. Without this line, a '
        "run is stopped after 1h.",
        LEASE_HEADER,
        'catch_up = "skip": as in cron, runs that were missed do not start later.',
        "Cron starts commands in the user's home with PATH=/usr/bin:/bin. A replica starts them in "
        "its own directory with its own environment, unless cwd and env are set.",
        "Mail is sent when a job begins to fail and when it recovers. The SMTP server is localhost."
        " For another one, set host, port, user and password of the channel. The ledger keeps the "
        "end of each output."
        if mails
        else "No mail is sent. The ledger keeps the end of the output.",
    ]


def channel(mail: Mail) -> Table:
    """Return the table of the channel that sends these mails."""
    return {"kind": "email", "to": list(mail.to), "sender": mail.sender}


def table_of(
    job: ImportedJob,
    options: Options,
    channels: Mapping[Mail, str],
    hosts: Table = MappingProxyType({}),
) -> Table:
    """Return the table of a job. `hosts`: the keys that name the hosts on which it runs."""
    if options.observe:
        delay = durations.parse(job.jitter or "0s")
        grace = durations.format(durations.parse(observed.GRACE) + delay)
        timing = {"schedule": job.schedule, "timezone": job.timezone, "grace": grace}
        return {"description": job.description, **hosts, **timing}
    boots = job.schedule == REBOOT  # no run of an earlier boot still runs
    overlaps = boots or (options.faithful and not job.single)
    return {
        "description": job.description,
        "schedule": job.schedule,
        "timezone": job.timezone,
        **hosts,
        "command": job.command if isinstance(job.command, str) else list(job.command),
        "env": job.env or None,
        "cwd": job.cwd,
        "jitter": job.jitter,
        "notify": channels[job.mail] if job.mail is not None else None,
        "catch_up": "skip",
        "grace": BOOT_GRACE if boots else None,
        "overlap": "allow" if overlaps else "skip",
        "run_timeout": NO_LIMIT,
        "stale_timeout": lease(job.schedule),
    }
