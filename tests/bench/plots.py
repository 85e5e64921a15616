"""The plots of a report, as SVG. Needs the extra `bench`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.bench.sample import cpu, middle, speed

Found = Mapping[str, Any]

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "cronledger",  # the same figures give the same file
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
SIZE = (7.2, 3.2)  # inches


def draw(found: Found, directory: Path) -> list[Path]:
    """Draw each plot whose figures were measured, and return the files."""
    directory.mkdir(exist_ok=True)
    files = []
    with mpl.rc_context(STYLE):
        for name, (measurement, plot) in _PLOTS.items():
            if measurement in found:
                figure = Figure(figsize=SIZE, layout="constrained")
                plot(figure.subplots(), found[measurement])
                files.append(directory / f"{name}.svg")
                figure.savefig(files[-1], metadata={"Date": None})
    return files


def _throughput(axes: Axes, slots: Mapping[str, Any]) -> None:
    _bars(axes, slots, speed)
    axes.set_ylim(bottom=100)
    axes.set_ylabel("executions per second")


def _cpu(axes: Axes, slots: Mapping[str, Any]) -> None:
    _bars(axes, slots, cpu)
    axes.set_ylim(bottom=10)
    axes.set_ylabel("µs of CPU time per execution")


def _bars(axes: Axes, slots: Mapping[str, Any], value: Callable[[Any], float]) -> None:
    """Draw a group of bars for each number of slots, one for each contestant."""
    axes.set_yscale("log")
    names = list(next(iter(slots.values())))
    width = 0.85 / len(names)
    for n, name in enumerate(names):
        places = [group + (n - len(names) / 2 + 0.5) * width for group in range(len(slots))]
        heights = [middle(samples[name], value) for samples in slots.values()]
        axes.bar(places, heights, width, label=name)
    axes.set_xticks(range(len(slots)), [f"{size} slots" for size in slots])
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=7, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.25), frameon=False)


def _lateness(axes: Axes, found: Found) -> None:
    starts = sorted(found["starts"])
    shares = [(n + 1) / len(starts) for n in range(len(starts))]
    axes.step(starts, shares, where="post")
    axes.set_xlabel("start after due_at, ms")
    axes.set_ylabel("share of the firings")
    axes.grid(alpha=0.3)


def _at_once(axes: Axes, found: Found) -> None:
    """Draw a bar for each contestant that started all of the smallest number of schedules."""
    due, outcomes = next(iter(found["at_once"].items()))
    all_started = {
        name: each["last"]
        for name, each in outcomes.items()
        if "error" not in each and each["called"] == each["due"]
    }
    _horizontal(axes, all_started)
    axes.set_xscale("log")
    axes.set_xlabel(
        f"seconds until the last of {int(due):,} schedules that are due at once has started"
    )


def _punctual(axes: Axes, found: Found) -> None:
    each = found["each_second"]
    shares = {
        name: 100 * outcome["punctual"] / outcome["due"]
        for name, outcome in each["outcomes"].items()
        if "error" not in outcome
    }
    _horizontal(axes, shares)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"% of the firings of {each['jobs']} jobs, each second, within 50 ms")


def _horizontal(axes: Axes, values: Mapping[str, float]) -> None:
    axes.barh([*values], [*values.values()])
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)


def _pinned(axes: Axes, found: Found) -> None:
    minutes = range(1, len(found["p99"]) + 1)
    axes.plot(minutes, found["p99"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes beside a session that is idle in a transaction")
    axes.set_ylabel("p99 of start after due_at, ms")
    axes.grid(alpha=0.3)


def _burst(axes: Axes, found: Found) -> None:
    for replicas, runs in found["replicas"].items():
        label = "1 replica" if replicas == "1" else f"{replicas} replicas"
        axes.plot(runs["tenths"], [n / 10 for n in range(11)], marker=".", label=label)
    axes.set_xlabel(f"seconds after the instant at which {found['schedules']:,} schedules are due")
    axes.set_ylabel("share that has started")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def _replicas(axes: Axes, found: Mapping[str, Any]) -> None:
    numbers = [int(n) for n in found]
    axes.plot(numbers, [middle(samples, speed) for samples in found.values()], marker="o")
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [str(n) for n in numbers])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("replicas on one backlog")
    axes.set_ylabel("executions per second")
    axes.grid(alpha=0.3)
    beside = axes.twinx()
    beside.plot(
        numbers, [middle(samples, cpu) for samples in found.values()], marker="s", color="C1"
    )
    beside.set_ylim(bottom=0)
    beside.set_ylabel("µs of CPU time per execution", color="C1")


_PLOTS: Mapping[str, tuple[str, Callable[[Axes, Any], None]]] = {
    "at_once": ("scheduling", _at_once), "punctual": ("scheduling", _punctual),
    "pinned": ("pinned", _pinned), "lateness": ("lateness", _lateness), "burst": ("burst", _burst),
    "throughput": ("throughput", _throughput), "cpu": ("throughput", _cpu),
    "replicas": ("replicas", _replicas),
}  # fmt: skip
