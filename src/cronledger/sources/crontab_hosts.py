"""The crontabs of many hosts as one `cronledger.toml`: equal entries become one job.

Two entries are equal if their schedule, zone, user, command, environment, directory and mail are.
Comments may differ. An entry that a host has twice is two jobs, because cron starts it twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cronledger.rules.cron_fields import REBOOT
from cronledger.sources import crontab_observed, crontab_toml
from cronledger.sources.crontab import Imported, ImportedJob, Options
from cronledger.sources.crontab_mail import Mail, channel_names
from cronledger.sources.imported import Entry, Import, Note, Source, Table, unique
from cronledger.sources.imported_hosts import header, selection, source_name


@dataclass(frozen=True, slots=True)
class HostCrontab:
    """A crontab of a host. `file`: its name in notes."""

    host: str
    file: str
    crontab: Imported


@dataclass(slots=True)
class _Group:
    """Equal entries of several hosts, or equal lines without a job. `place`: that of the first."""

    place: str
    text: str
    job: ImportedJob | None
    notes: tuple[Note, ...]
    hosts: list[str] = field(default_factory=list)
    name: str = ""


def convert(crontabs: Sequence[HostCrontab], options: Options, label: str) -> Import:
    """Return the jobs of all hosts, with the differences between the hosts as notes.

    Those of every host come first, then those of some hosts, then those of one.
    """
    every = list(dict.fromkeys(one.host for one in crontabs))
    groups = _groups(crontabs)
    _name(groups)
    channels = channel_names(group.job.mail for group in groups if group.job)
    by_hosts: dict[tuple[str, ...], list[_Group]] = {}
    for group in sorted(groups, key=lambda group: -len(group.hosts)):
        by_hosts.setdefault(tuple(group.hosts), []).append(group)
    others = _same_commands(groups)
    return Import(
        "crontab",
        tuple(
            Source(
                source_name(hosts, every),
                tuple(
                    Entry(
                        group.place, group.text,
                        _tables(group, options, channels,
                                _selection(group.job, hosts, every,
                                           None if options.observe else label)),
                        (*group.notes, *_differences(group, others, every)),
                        _wrapper(group),
                    )
                    for group in members
                ),
            )
            for hosts, members in by_hosts.items()
        ),
        [*([] if options.observe
           else header(label, repeated=tuple(every) in by_hosts and len(every) > 1)),
         *crontab_toml.header(options, mails=bool(channels))],
        {name: crontab_toml.channel(mail) for mail, name in channels.items()},
    )  # fmt: skip


def _groups(crontabs: Iterable[HostCrontab]) -> list[_Group]:
    groups: dict[tuple[Any, ...], _Group] = {}
    times: Counter[tuple[Any, ...]] = Counter()
    for one in crontabs:
        jobs = {job.line: job for job in one.crontab.jobs}
        lines = {note.line: note.text for note in one.crontab.notes}
        lines |= {line: job.text for line, job in jobs.items()}
        for line, text in sorted(lines.items()):
            job = jobs.get(line)
            notes = tuple(
                Note(note.message, note.kind) for note in one.crontab.notes if note.line == line
            )
            key: tuple[Any, ...] = _identity(job) if job else (text.strip(), notes)
            times[one.host, key] += 1
            group = groups.setdefault(
                (*key, times[one.host, key]),
                _Group(f"{one.host}:{one.file}:{line}", text, job, notes),
            )
            group.hosts.append(one.host)
    return list(groups.values())


def _identity(job: ImportedJob) -> tuple[Any, ...]:
    return (job.user, job.command, *_settings(job).values())


def _settings(job: ImportedJob) -> dict[str, Any]:
    """Return what may differ between two entries with the same command, by its name in notes."""
    return {
        "schedule": job.schedule,
        "timezone": job.timezone,
        "env": frozenset(job.env.items()),
        "cwd": job.cwd,
        "jitter": job.jitter,
        "mail": job.mail,
        "overlap": job.single,
    }


def _name(groups: Iterable[_Group]) -> None:
    """Give each job a name: that of its first entry, with the host if this name is taken."""
    taken: set[str] = set()
    for group in sorted(groups, key=lambda group: -len(group.hosts)):
        if group.job is not None:
            name = group.job.name
            if name in taken and len(group.hosts) == 1:
                name = f"{name}-{group.hosts[0]}"
            group.name = unique(name, taken)
            taken.add(group.name)


def _same_commands(groups: Iterable[_Group]) -> dict[tuple[Any, ...], list[_Group]]:
    found: dict[tuple[Any, ...], list[_Group]] = {}
    for group in groups:
        if group.job is not None:
            found.setdefault((group.job.user, group.job.command), []).append(group)
    return found


def _differences(
    group: _Group, others: Mapping[tuple[Any, ...], Sequence[_Group]], every: Sequence[str]
) -> Iterator[Note]:
    """Yield a note if hosts do not have the entry, and one for each job with the same command."""
    if len(group.hosts) < len(every):
        yield Note(f"only on {len(group.hosts)} of {len(every)} hosts: {', '.join(group.hosts)}")
    if group.job is None:
        return
    mine = _settings(group.job)
    for other in others[group.job.user, group.job.command]:
        if other is not group and other.job is not None:
            theirs = _settings(other.job)
            differ = [
                f"{name} {theirs[name]!r}" if name in ("schedule", "timezone") else name
                for name in mine if mine[name] != theirs[name]
            ]  # fmt: skip
            what = f"another {', another '.join(differ)}" if differ else "the same settings"
            yield Note(
                f"the job {other.name} on {', '.join(other.hosts)} has the same command and {what}"
            )


def _wrapper(group: _Group) -> str:
    """Return the line of each host. Only a job of several hosts has a scope for each of them."""
    job = group.job
    if job is None:
        return ""
    if len(group.hosts) == 1:
        return crontab_observed.line(job, group.name)
    lines = (f"on {host}:\n{crontab_observed.line(job, group.name, host)}" for host in group.hosts)
    return "\n".join(lines)


def _selection(
    job: ImportedJob | None, hosts: Sequence[str], every: Sequence[str], label: str | None
) -> Table:
    """Return the keys that name the hosts. `label`: of `every`; None: the jobs are observed."""
    if job is not None and job.schedule == REBOOT and len(hosts) == 1:
        return {"every": f"host={hosts[0]}"}
    if label is None:
        several = {"scope_kind": crontab_observed.SCOPE, "scopes": list(hosts)}
        return several if len(hosts) > 1 else {}
    return selection(hosts, every, label)


def _tables(
    group: _Group, options: Options, channels: Mapping[Mail, str], hosts: Table
) -> dict[str, Table]:
    if group.job is None:
        return {}
    return {group.name: crontab_toml.table_of(group.job, options, channels, hosts)}
