"""The targets, each with the figure of a run, and with its floor or its peer from the same run."""

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from tests.bench import enqueue, idle, large_ledger, scheduling, throughput
from tests.bench.firing import PATIENCE_SECONDS
from tests.bench.peer_processes import PGQUEUER
from tests.bench.sample import Json, cpu, middle, ratio, speed

Found = Mapping[str, Any]
"""The results of the measurements, by name."""

CPU_TARGETS = {"10": 0.75, "100": 0.85, "1000": 0.85}
PGQUEUER_TARGETS = {PGQUEUER: 0.75, "PGQueuer (psycopg)": 1.5}
LAST_START_TARGETS = {"10000": 1.0, "100000": 9.0}
PINNED_TARGET = 1.5
ANALYZED_TARGET = 1.5
CLAIM_COST_TARGET = 1.2
CAPTURE_TARGET = 1.01
MEGABYTE = 1_000_000


class Row(NamedTuple):
    """One line of the table. `met` is None where there is no target."""

    what: str
    target: str
    measured: str
    beside: str
    met: bool | None


def rows(found: Found) -> list[Row]:
    """Return a row for each target whose figures were measured."""
    return [row for name, rows_of in _ROWS.items() if name in found for row in rows_of(found[name])]


def _backlog(slots: Mapping[str, Mapping[str, list[Json]]]) -> Iterator[Row]:
    samples = slots["1000"]
    what = "Backlog, one replica, 1000 slots"
    yield _speed_row(what, 0.55, "the floor", samples, throughput.OURS, throughput.FLOOR)
    for peer, target in PGQUEUER_TARGETS.items():
        if peer in samples:
            what = f"The same, beside {peer} at batch 1000"
            yield _speed_row(what, target, "it", samples, throughput.OURS, peer)
    for name, target in CPU_TARGETS.items():
        if throughput.BASELINE in slots[name]:
            yield _cpu_row(name, target, slots[name])


def _speed_row(
    what: str, least: float, of: str, samples: Mapping[str, list[Json]], *names: str
) -> Row:
    """Return the row of a speed that is at least this share of another one, by their names."""
    ours, other = (samples[name] for name in names)
    share = ratio(ours, other, speed)
    return Row(
        what, f"≥ {least} of {of}", f"{share:.2f} ({_count(middle(ours, speed))}/s)",
        f"{names[1]} {_count(middle(other, speed))}/s", share >= least,
    )  # fmt: skip


def _cpu_row(slots: str, target: float, samples: Mapping[str, list[Json]]) -> Row:
    ours, before = samples[throughput.OURS], samples[throughput.BASELINE]
    share = ratio(ours, before, cpu)
    return Row(
        f"CPU per execution, {slots} slots", f"≤ {target} of commit {throughput.BASELINE}",
        f"{share:.2f} ({_split(ours)})", f"{throughput.BASELINE} {_split(before)}",
        share <= target,
    )  # fmt: skip


def _split(samples: list[Json]) -> str:
    client = middle(samples, lambda sample: sample["client_us"])
    server = middle(samples, lambda sample: sample["server_us"])
    return f"{client:.0f} + {server:.0f} µs"


def _enqueue(samples: Mapping[str, list[Json]]) -> Iterator[Row]:
    for ours, what, target in (
        (enqueue.MANY, "`enqueue_many`, 2,000 messages in each statement", 1.0),
        (enqueue.ONE, "`enqueue`, called for each message of a statement", 0.15),
    ):
        if PGQUEUER in samples:
            yield _speed_row(what, target, "PGQueuer", samples, ours, PGQUEUER)


def _lateness(found: Found) -> Iterator[Row]:
    start, called, floor = found["start"], found["called"], found["floor"]
    beside = f"a session that sleeps until then {floor['p50']} / {floor['p99']} ms"
    yield Row(
        "Start of a job that fires each second, p50 / p99", "≤ 1 / 3 ms",
        f"{start['p50']} / {start['p99']} ms", beside, start["p50"] <= 1 and start["p99"] <= 3,
    )  # fmt: skip
    yield Row(
        "Call of its handler, p50", "≤ 3 ms", f"{called['p50']} ms", beside, called["p50"] <= 3
    )


def _scheduling(found: Found) -> Iterator[Row]:
    for schedules, outcomes in found["at_once"].items():
        ours, floor = outcomes[scheduling.OURS], outcomes[scheduling.BARE_LOOP]
        target = LAST_START_TARGETS.get(schedules)
        met = ours["called"] == ours["due"] and ours["last"] <= (target or 0)
        yield Row(
            f"{_count(int(schedules))} schedules due at one instant, last start, beside peers",
            "" if target is None else f"≤ {target} s", last_start(ours),
            f"a bare loop {last_start(floor)}", None if target is None else met,
        )  # fmt: skip
    each = found["each_second"]
    ours, floor = (each["outcomes"][name] for name in (scheduling.OURS, scheduling.BARE_LOOP))
    yield Row(
        f"{each['jobs']} jobs that fire each second for {each['seconds']} s, within 50 ms", "100 %",
        share(ours, "punctual"), f"a bare loop {share(floor, 'punctual')}",
        ours["punctual"] == ours["due"],
    )  # fmt: skip


def last_start(outcome: Found) -> str:
    """Return the seconds until all have started, or how many have."""
    if "error" in outcome:
        return "failed"
    if outcome["called"] < outcome["due"]:
        return f"only {outcome['called']:,} started in {PATIENCE_SECONDS:.0f} s"
    return f"{outcome['last']:.2f} s"


def share(outcome: Found, key: str) -> str:
    return f"{100 * outcome[key] / outcome['due']:.2f} %" if key in outcome else "failed"


def _pinned(found: Found) -> Iterator[Row]:
    part, dead = max(1, len(found["p99"]) // 6), sum(found["dead"].values())
    for name, what, unit in (("p99", "p99 of the start", "ms"), ("cpu_us", "CPU", "µs")):
        first, last = median(found[name][:part]), median(found[name][-part:])
        yield Row(
            f"{found['due_each_second']} due each second beside a session that is idle in a "
            f"transaction for {len(found['p99'])} minutes, {what}",
            f"last {part} minutes ≤ {PINNED_TARGET} of the first", f"{last / first:.2f}",
            f"{first:.0f} and {last:.0f} {unit}; {dead:,} dead versions",
            last / first <= PINNED_TARGET,
        )  # fmt: skip


def _burst(found: Found) -> Iterator[Row]:
    for replicas, runs in found["replicas"].items():
        several = "" if replicas == "1" else f", {replicas} replicas"
        yield Row(
            f"{_count(found['schedules'])} schedules due at one instant, last start{several}",
            "≤ 1.0 s", f"{runs['last']:.2f} s",
            f"the INSERT of as many rows {found['floor']:.2f} s", runs["last"] <= 1.0,
        )  # fmt: skip


def _analyzed_burst(found: Found) -> Iterator[Row]:
    analyzed, usual = median(found["analyzed"]), median(found["usual"])
    yield Row(
        f"{_count(found['schedules'])} schedules due at one instant, last start, after an ANALYZE "
        "of the empty ledger", f"≤ {ANALYZED_TARGET} of the usual", f"{found['ratio']:.2f}",
        f"{analyzed:.2f} and {usual:.2f} s", found["ratio"] <= ANALYZED_TARGET,
    )  # fmt: skip


def _idle(found: Found) -> Iterator[Row]:
    few = found[str(idle.FEW)]
    for schedules, size in found.items():
        rate = size["statements_per_second"]
        yield Row(
            f"Idle replica, {_count(int(schedules))} schedules, statements/s", "≤ 0.1",
            f"{rate:.2f}", f"and {size['control_per_second']:.2f} of BEGIN and COMMIT", rate <= 0.1,
        )  # fmt: skip
        observed = f"observed for {size['seconds']} s"
        yield Row(
            f"CPU of an idle hour, {_count(int(schedules))} schedules, replica and its sessions",
            "", f"{size['cpu_seconds_per_hour']:.1f} s", observed, None,
        )  # fmt: skip
        if size is not few:
            grown = max(0, size["resident_bytes"] - few["resident_bytes"]) / MEGABYTE
            yield Row(
                "Memory of that replica above that with 10 schedules", "≤ 10 MB", f"{grown:.1f} MB",
                f"{few['resident_bytes'] / MEGABYTE:.0f} MB with 10", grown <= 10,
            )  # fmt: skip


def _large(found: Found) -> Iterator[Row]:
    size = f"{_count(found['rows'])} rows ({found['bytes'] / MEGABYTE / 1000:.0f} GB)"
    sides = (large_ledger.LARGE, large_ledger.EMPTY)
    for kind, what in (("backlog", "missed plan_times"), ("enqueued", "messages")):
        name = f"Claim speed at {size}, {what}"
        yield _speed_row(name, 0.9, "an empty ledger", found[kind], *sides)


def _replicas(samples: Mapping[str, list[Json]]) -> Iterator[Row]:
    if "8" in samples:
        share = ratio(samples["8"], samples["1"], cpu)
        yield Row(
            "8 replicas on one backlog, CPU per execution", "≤ 1.3 of one replica",
            f"{share:.2f} ({_split(samples['8'])})", f"one replica {_split(samples['1'])}",
            share <= 1.3,
        )  # fmt: skip


def _schedules(found: Found) -> Iterator[Row]:
    ledgers: Mapping[str, Found] = found["ledgers"]
    for asked, ledger in ledgers.items():
        most = 100 if int(asked) <= 1_000_000 else 150
        what = (
            f"{_count(ledger['schedules'])} schedules ({ledger['bytes'] / MEGABYTE / 1000:.1f} GB),"
            f" {found['due_each_second']} due each second"
        )
        for replicas, run in ledger["replicas"].items():
            several = "" if replicas == "1" else f", {replicas} replicas"
            worst = max(run["p99_each_minute"])
            yield Row(
                f"{what}{several}, start p50 / p99 / last, p99 of the worst of "
                f"{len(run['p99_each_minute'])} minutes", f"p99 ≤ {most} ms in each minute",
                f"{run['p50']:.0f} / {run['p99']:.0f} / {run['max']:.0f} ms, {worst:.0f} ms",
                f"{_split([run])} per execution", worst <= most,
            )  # fmt: skip
    small, large = (ledgers[str(n)] for n in (min(map(int, ledgers)), max(map(int, ledgers))))
    ours, before = ([ledger["replicas"]["1"]] for ledger in (large, small))
    share = ratio(ours, before, cpu)
    yield Row(
        f"CPU per execution with {_count(large['schedules'])} schedules",
        f"≤ {CLAIM_COST_TARGET} of that with {_count(small['schedules'])}",
        f"{share:.2f} ({_split(ours)})", _split(before), share <= CLAIM_COST_TARGET,
    )  # fmt: skip


def _capture(samples: Mapping[str, list[Json]]) -> Iterator[Row]:
    captured, other = samples["captured"], samples["not captured"]
    share = ratio(captured, other, cpu)
    yield Row(
        "CPU per execution of a handler that prints nothing, with `capture_output`",
        f"≤ {CAPTURE_TARGET} of that without", f"{share:.3f} ({_split(captured)})", _split(other),
        share <= CAPTURE_TARGET,
    )  # fmt: skip


def _startup(found: Found) -> Iterator[Row]:
    yield Row(
        "`cronledger --help`", "≤ 200 ms", f"{found['help_ms']:.0f} ms",
        f"the interpreter alone {found['floor_ms']:.0f} ms", found["help_ms"] <= 200,
    )  # fmt: skip


def _plans(found: Found) -> Iterator[Row]:
    yield Row(
        f"Query plans at {_count(found['executions'])} rows within their limits", "all",
        f"{found['within']} of {found['plans']}", "", found["within"] == found["plans"],
    )  # fmt: skip


def _count(value: float) -> str:
    """Return a number with thousands separators; large ones are rounded to three digits."""
    if value < 1000 or value % 1000 == 0:
        return f"{value:,.0f}"
    digits = len(str(int(value)))
    return f"{round(value, 3 - digits):,.0f}"


_ROWS: Mapping[str, Callable[[Any], Iterator[Row]]] = {
    "scheduling": _scheduling, "schedules": _schedules, "pinned": _pinned, "lateness": _lateness,
    "burst": _burst, "analyzed_burst": _analyzed_burst, "throughput": _backlog,
    "enqueue": _enqueue, "capture": _capture, "replicas": _replicas, "large_ledger": _large,
    "idle": _idle, "startup": _startup, "plans": _plans,
}  # fmt: skip
