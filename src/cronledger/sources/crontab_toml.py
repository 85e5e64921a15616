"""Write imported crontabs as a `cronledger.toml`."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit

from cronledger.rules.model import NO_LIMIT
from cronledger.sources.crontab import Imported, ImportedJob, Options
from cronledger.sources.crontab_mail import Mail, channel_names
from cronledger.sources.crontab_words import printable
from cronledger.sources.toml_schema import DIRECTIVE

LEASE = "10m"
"""A restart or a failover of most databases is shorter."""


def render(crontabs: Sequence[Imported], options: Options) -> str:
    """Return the text of a `cronledger.toml`: every job, and every note as a comment."""
    files = ", ".join(f"{crontab.file} ({crontab.format} format)" for crontab in crontabs)
    title = f"Imported by `cronledger import-crontab` from {files}."
    names = channel_names(job.mail for crontab in crontabs for job in crontab.jobs)
    head = _comments(*_wrapped([title]), "", *_wrapped(_header(options, mails=bool(names))))
    parts = [f"{DIRECTIVE}\n{head}", *(_channel(name, mail) for mail, name in names.items())]
    for crontab in crontabs:
        jobs = {job.line: job for job in crontab.jobs}
        noted = {note.line for note in crontab.notes}
        for line in sorted(noted | jobs.keys()):
            notes = [note for note in crontab.notes if note.line == line]
            job = jobs.get(line)
            messages = [
                f"{'not imported' if note.kind == 'dropped' else 'note'}: {note.message}"
                for note in notes
            ]
            text = job.text if job else notes[0].text
            place = f"{crontab.file}:{line}"
            table = _table(job, options, names) if job else ""
            parts.append(_comments(place, text.strip(" \t"), *messages) + table)
    return "\n".join(parts)


def _header(options: Options, *, mails: bool) -> list[str]:
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
        f'stale_timeout = "{LEASE}": a run survives an outage of the database of almost this '
        "length, and the crash of a replica is noticed that much later. Jobs that fire more than "
        "once an hour have the default of 1m, because their next run would wait for it.",
        'catch_up = "skip": as in cron, runs that were missed do not start later.',
        "Cron starts commands in the user's home with PATH=/usr/bin:/bin. A replica starts them in "
        "its own directory with its own environment, unless cwd and env are set.",
        "Mail is sent when a job begins to fail and when it recovers. The SMTP server is localhost."
        " For another one, set host, port, user and password of the channel. The ledger keeps the "
        "end of each output."
        if mails
        else "No mail is sent. The ledger keeps the end of the output.",
    ]


def _wrapped(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, 96)]


def _comments(*lines: str) -> str:
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in lines)


def _channel(name: str, mail: Mail) -> str:
    table = tomlkit.table()
    table.update({"kind": "email", "to": list(mail.to), "sender": mail.sender})
    channels = tomlkit.table(is_super_table=True)
    channels.add(name, table)
    return tomlkit.dumps(tomlkit.document().add("channels", channels))


def _fires_often(schedule: str) -> bool:
    """Return whether a schedule fires more than once an hour: its minute is not a number."""
    minute = schedule.split(maxsplit=1)[0]
    if minute.startswith("@"):
        return minute.startswith("@every")
    return not minute.isdecimal()


def _table(job: ImportedJob, options: Options, channels: Mapping[Mail, str]) -> str:
    table = tomlkit.table()
    overlaps = options.faithful and not job.single
    values: dict[str, Any] = {
        "description": job.description,
        "schedule": job.schedule,
        "timezone": job.timezone,
        "command": job.command if isinstance(job.command, str) else list(job.command),
        "env": tomlkit.inline_table() if job.env else None,
        "cwd": job.cwd,
        "jitter": job.jitter,
        "notify": channels[job.mail] if job.mail is not None else None,
        "catch_up": "skip",
        "overlap": "allow" if overlaps else "skip",
        "run_timeout": NO_LIMIT,
        "stale_timeout": None if _fires_often(job.schedule) else LEASE,
    }
    if job.env:
        values["env"].update(job.env)
    for name, value in values.items():
        if value is not None:
            table.add(name, value)
    jobs = tomlkit.table(is_super_table=True)
    jobs.add(job.name, table)
    return tomlkit.dumps(tomlkit.document().add("jobs", jobs))
