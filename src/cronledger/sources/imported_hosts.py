"""The entries of many hosts as one import, in which equal entries become one job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cronledger.rules.model import HOST
from cronledger.sources.imported import Entry, Note, Source, Table, unique

LABEL = "role=cron"
"""The label of the hosts that run a job with `every`, unless another one is given."""


def selection(hosts: Sequence[str], every: Sequence[str], label: str) -> Table:
    """Return the keys that name the hosts of a job. `label`: that of `every` host."""
    if len(hosts) == 1:
        return {"on": f"host={hosts[0]}"}
    if len(hosts) == len(every):
        return {"every": label}
    return {"scope_kind": HOST, "scopes": list(hosts)}


def source_name(hosts: Sequence[str], every: Sequence[str]) -> str:
    """Return the name of the source that has the entries of these hosts."""
    return f"all {len(every)} hosts" if len(hosts) == len(every) > 1 else " + ".join(hosts)


def header(label: str, *, repeated: bool) -> Iterator[str]:
    """Yield sentences about the keys of hosts. `repeated`: some jobs have `every`."""
    yield (
        'on = "host=NAME": only a replica on this host runs the job. Start a replica on each host '
        "with CRONLEDGER_HOST=NAME if NAME is not its host name."
    )
    if repeated:
        yield (
            f'every = "{label}": each host with this label runs the job. Start its replica with '
            f"CRONLEDGER_LABELS={label}."
        )


@dataclass(frozen=True, slots=True)
class _Group:
    entry: Entry
    hosts: list[str]


def merged(
    by_host: Mapping[str, Sequence[tuple[str, Entry]]], label: str
) -> tuple[tuple[Source, ...], bool]:
    """Return the sources, those of every host first, and whether a job has `every`.

    `by_host`: the entries of each host, with the name of each. Entries are equal if their names,
    jobs and notes are equal. A job that differs between hosts has the host in its name.
    """
    every = list(by_host)
    groups: list[_Group] = []
    for host, entries in by_host.items():
        for name, entry in entries:
            placed = replace(entry, place=f"{host}:{name}")
            for group in groups:
                if host not in group.hosts and _alike(group.entry, placed):
                    group.hosts.append(host)
                    break
            else:
                groups.append(_Group(placed, [host]))
    groups.sort(key=lambda group: -len(group.hosts))
    taken: set[str] = set()
    sources: dict[tuple[str, ...], list[Entry]] = {}
    for group in groups:
        hosts = tuple(group.hosts)
        sources.setdefault(hosts, []).append(_of_hosts(group, every, label, taken))
    found = tuple(Source(source_name(hosts, every), tuple(x)) for hosts, x in sources.items())
    return found, len(every) > 1 and tuple(every) in sources


def _alike(one: Entry, other: Entry) -> bool:
    names = [entry.place.partition(":")[2] for entry in (one, other)]
    return names[0] == names[1] and (one.jobs, one.notes) == (other.jobs, other.notes)


def _of_hosts(group: _Group, every: Sequence[str], label: str, taken: set[str]) -> Entry:
    jobs: dict[str, Table] = {}
    for name, table in group.entry.jobs.items():
        named = unique(name if name not in taken else f"{name}-{group.hosts[0]}", taken)
        taken.add(named)
        jobs[named] = {**table, **selection(group.hosts, every, label)}
    notes = list(group.entry.notes)
    if len(group.hosts) < len(every):
        listed = ", ".join(group.hosts)
        notes.append(Note(f"only on {len(group.hosts)} of {len(every)} hosts: {listed}"))
    return replace(group.entry, jobs=jobs, notes=tuple(notes))
