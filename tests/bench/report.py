"""The report of a run: a table of targets and tables of contestants, for people and documents."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from docs.tools.markdown import table
from tests.bench import targets
from tests.bench.product import ROOT
from tests.bench.sample import cpu, middle, speed, wal

JSON = ROOT / "docs" / "performance.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, the headers and the lines."""


def tables(report: Mapping[str, Any]) -> Iterator[Table]:
    found = report["measurements"]
    yield (
        "Targets",
        ("", "target", "measured", "in the same run", ""),
        [(r.what, r.target, r.measured, r.beside, _mark(r.met)) for r in targets.rows(found)],
    )
    if "scheduling" in found:
        yield from _scheduling_tables(found["scheduling"])
    if "throughput" in found:
        slots = found["throughput"]
        for title, value in (
            ("Executions per second, by slots", speed),
            ("CPU time per execution, µs of client and server, by slots", cpu),
            ("WAL per execution, bytes, by slots", wal),
        ):
            yield title, ("", *slots), _by_size(slots, value)
    if "enqueue" in found:
        lines = _by_size({"per second": found["enqueue"]}, speed)
        yield "Messages enqueued per second", ("", "per second"), lines
    if "replicas" in found:
        one = middle(found["replicas"]["1"], cpu)
        yield (
            "Replicas on one backlog",
            ("replicas", "executions per second", "CPU time per execution, of that of one"),
            [
                (n, f"{middle(samples, speed):,.0f}", f"{middle(samples, cpu) / one:.2f}")
                for n, samples in found["replicas"].items()
            ],
        )


def _scheduling_tables(found: Mapping[str, Any]) -> Iterator[Table]:
    sizes = found["at_once"]
    names = dict.fromkeys(name for outcomes in sizes.values() for name in outcomes)
    yield (
        "Schedules that are due at one instant, last start",
        ("", *(f"{int(size):,}" for size in sizes)),
        [
            (name, *(targets.last_start(o[name]) if name in o else "" for o in sizes.values()))
            for name in names
        ],
    )
    each = found["each_second"]
    yield (
        f"{each['jobs']} jobs that fire each second, for {each['seconds']} seconds",
        ("", "started", "within 50 ms"),
        [
            (name, targets.share(outcome, "called"), targets.share(outcome, "punctual"))
            for name, outcome in each["outcomes"].items()
        ],
    )


def _mark(met: bool | None) -> str:
    return {True: "met", False: "missed", None: ""}[met]


def _by_size(sizes: Mapping[str, Any], value: Any) -> list[Sequence[str]]:
    """Return a line for each contestant, with a value for each size."""
    names = dict.fromkeys(name for samples in sizes.values() for name in samples)
    return [
        (name, *(f"{middle(samples[name], value):,.0f}" for samples in sizes.values()))
        for name in names
    ]


def text(report: Mapping[str, Any]) -> str:
    parts = [_environment(report)]
    for title, headers, lines in tables(report):
        parts.append(f"{title}\n\n{tabulate(lines, headers, disable_numparse=True)}")
    return "\n\n".join(parts)


def markdown(report: Mapping[str, Any], plots: Sequence[str]) -> str:
    """Return the report for the documents. `plots`: their files, relative to docs/."""
    parts = [_environment(report)]
    for title, headers, lines in tables(report):
        parts.append(f"### {title}\n\n{table(headers, lines).rstrip()}")
    parts += [f"![{Path(plot).stem.replace('_', ' ')}]({plot})" for plot in plots]
    return "\n\n".join(parts)


def _environment(report: Mapping[str, Any]) -> str:
    """Return a paragraph about the machine and the versions."""
    versions = report["versions"]
    peers = report.get("peers", {})
    listed = ", ".join(f"{name} {version}" for name, version in peers.items())
    return (
        f"Form {report['form']}, {report['began_at'][:10]}, commit {versions['cronledger']}, "
        f"{report['cores']} cores ({report['processor']}), load {report['load_before']} before. "
        f"PostgreSQL {versions['postgresql']} with fsync "
        f"{report['settings']['fsync']} and shared_buffers {report['settings']['shared_buffers']}, "
        f"Python {versions['python']}, psycopg {versions['psycopg']}."
        + (f" Peers: {listed}." if listed else "")
        + "".join(_measured_later(run) for run in report.get("later", []))
    )


def _measured_later(run: Mapping[str, Any]) -> str:
    names = ", ".join(name.replace("_", " ") for name in run["names"])
    return (
        f" Measured later on {run['began_at'][:10]}, at commit {run['versions']['cronledger']}, "
        f"with load {run['load_before']} before: {names}."
    )


def replace_figures(page: str, figures: str) -> str:
    """Return the page with `figures` between its two markers. Raises ValueError without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page does not contain {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"
