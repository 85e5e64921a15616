"""The report of `make bench`: targets, tables, JSON and the page; without measuring anything."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench_main
from tests.bench import environment, forms, idle, report, targets, throughput
from tests.bench.bench import Bench
from tests.bench.sample import Sample, compete, cpu, ratio, speed
from tests.bench.server import Server

pytestmark = pytest.mark.tools


def sample(per_second: float, client: float = 60.0, server: float = 40.0) -> dict[str, float]:
    return Sample(per_second, client, server, 900).json()


def slots(ours: float, cpu_us: float) -> dict[str, Any]:
    return {
        "floor": [sample(20_000)],
        "cronledger": [sample(ours, cpu_us, 0)],
        throughput.BASELINE: [sample(5_000, 100, 100)],
        "PGQueuer (asyncpg)": [sample(14_000)],
    }


def fired(p99: float, cpu_us: float) -> dict[str, Any]:
    return sample(1_000, cpu_us, 0) | {"p50": 20, "p99": p99, "max": 200, "p99_each_minute": [p99]}


OUTCOME = {"due": 10_000, "called": 10_000, "punctual": 9_000, "last": 0.8}
FOUND: dict[str, Any] = {
    "scheduling": {
        "at_once": {
            "10000": {
                "cronledger": OUTCOME, "bare loop": OUTCOME | {"last": 0.4},
                "pg_cron": OUTCOME | {"called": 6_000}, "PGQueuer (psycopg)": {"error": "no"},
            },
            "100000": {"cronledger": OUTCOME | {"last": 9.5}, "bare loop": OUTCOME},
        },
        "each_second": {
            "jobs": 500, "seconds": 60,
            "outcomes": {"cronledger": OUTCOME | {"punctual": 10_000}, "bare loop": OUTCOME},
        },
    },
    "pinned": {
        "due_each_second": 300, "p99": [100.0] * 50 + [140.0] * 10,
        "cpu_us": [200.0] * 50 + [320.0] * 10, "dead": {"schedules": 1_000_000},
    },
    "analyzed_burst": {
        "schedules": 10_000, "usual": [1.0, 1.2], "analyzed": [1.1, 2.4], "ratio": 1.55,
    },
    "idle": {
        "10": {
            "seconds": 3600, "cpu_seconds_per_hour": 9.0, "statements_per_second": 0.08,
            "control_per_second": 0.01, "resident_bytes": 60_000_000,
        },
    },
    "schedules": {
        "due_each_second": 1_000,
        "ledgers": {
            "10000": {
                "schedules": 10_000, "bytes": 2e7, "replicas": {"1": fired(90, 90.0)},
            },
            "1000000": {
                "schedules": 1_000_000, "bytes": 1e9,
                "replicas": {"1": fired(90, 95.0), "4": fired(120, 180.0)},
            },
            "10000000": {
                "schedules": 8_000_000, "bytes": 9e9, "replicas": {"1": fired(140, 120.0)},
            },
        },
    },
    "throughput": {"10": slots(3_000, 100), "100": slots(9_000, 180), "1000": slots(15_000, 120)},
    "capture": {"captured": [sample(9_000, 61)], "not captured": [sample(9_000)]},
    "replicas": {"1": [sample(8_000)], "8": [sample(12_000, 75, 50)]},
}  # fmt: skip
REPORT: dict[str, Any] = {
    "form": "full",
    "began_at": "2026-11-22T18:00:00+00:00",
    "versions": {
        "cronledger": "1234567", "postgresql": "18.4", "python": "3.11.7", "psycopg": "3.3.9",
    },
    "cores": 2,
    "processor": "a processor",
    "load_before": 0.1,
    "settings": {"fsync": "on", "shared_buffers": "1GB"},
    "peers": {"pgqueuer": "1.6.0"},
    "measurements": FOUND,
}  # fmt: skip


def test_each_target_is_judged_by_figures_of_the_same_run() -> None:
    found = {(row.what, row.met) for row in targets.rows(FOUND)}
    beside = "300 due each second beside a session that is idle in a transaction for 60 minutes"
    analyzed = "10,000 schedules due at one instant, last start"
    quantiles = "start p50 / p99 / last, p99 of the worst of 1 minutes"
    each_second = f"1000 due each second, {quantiles}"
    four = f"1000 due each second, 4 replicas, {quantiles}"
    assert found >= {
        ("10,000 schedules due at one instant, last start, beside peers", True),
        ("100,000 schedules due at one instant, last start, beside peers", False),
        ("500 jobs that fire each second for 60 s, within 50 ms", True),
        (f"{beside}, p99 of the start", True),
        (f"{analyzed}, after an ANALYZE of the empty ledger", False),
        ("CPU of an idle hour, 10 schedules, replica and its sessions", None),
        (f"1,000,000 schedules (1.0 GB), {each_second}", True),
        (f"1,000,000 schedules (1.0 GB), {four}", False),
        (f"8,000,000 schedules (9.0 GB), {each_second}", True),
        ("CPU per execution with 8,000,000 schedules", False),
        (f"{beside}, CPU", False),
        ("Backlog, one replica, 1000 slots", True),  # 0.75 of the floor
        ("The same, beside PGQueuer (asyncpg) at batch 1000", True),
        ("CPU per execution, 10 slots", True),  # 100 of 200 us
        ("CPU per execution, 100 slots", False),  # 180 of 200 us
        ("CPU per execution, 1000 slots", True),
        ("8 replicas on one backlog, CPU per execution", True),
        ("CPU per execution of a handler that prints nothing, with `capture_output`", True),
    }


def test_a_run_without_peers_and_baseline_has_the_rows_that_need_neither() -> None:
    alone = {
        size: {"floor": [sample(9)], "cronledger": [sample(6)]} for size in ("10", "100", "1000")
    }
    assert [row.what for row in targets.rows({"throughput": alone})] == [
        "Backlog, one replica, 1000 slots"
    ]


def test_the_report_has_the_same_tables_as_text_and_as_markdown() -> None:
    text, markdown = report.text(REPORT), report.markdown(REPORT, ["plots/cpu.svg"])
    for title, headers, lines in report.tables(REPORT):
        assert title in text
        assert f"### {title}" in markdown
        assert {len(line) for line in lines} == {len(headers)}
    assert "only 6,000 started in 60 s" in text
    assert "failed" in text
    assert "PostgreSQL 18.4" in text
    assert "Peers: pgqueuer 1.6.0." in markdown
    assert markdown.endswith("![cpu](plots/cpu.svg)")


def test_figures_replace_those_between_the_markers_of_a_page_and_nothing_else() -> None:
    page = f"# Page\n\n{report.BEGIN}\n\nold\n\n{report.END}\n\nRest\n"
    once = report.replace_figures(page, "new")
    assert once == f"# Page\n\n{report.BEGIN}\n\nnew\n\n{report.END}\n\nRest\n"
    assert report.replace_figures(once, "new") == once
    with pytest.raises(ValueError, match="does not contain"):
        report.replace_figures("# Page\n", "new")
    assert report.replace_figures(report.PAGE.read_text("utf-8"), "new")


def test_a_later_run_replaces_its_measurements_and_is_named() -> None:
    known = json.loads(json.dumps(REPORT | {"runs": {}}))
    for commit, names in (("aaaaaaa", ["burst", "idle"]), ("bbbbbbb", ["burst"])):
        versions = REPORT["versions"] | {"cronledger": commit}
        measured = {name: {"new": commit} for name in names}
        bench_main.add(known, REPORT | {"versions": versions, "measurements": measured, "runs": {}})
    assert known["measurements"]["burst"] == {"new": "bbbbbbb"}
    assert known["measurements"]["scheduling"] == FOUND["scheduling"]
    said = report._environment(known)
    assert "at commit aaaaaaa, with load 0.1 before: idle." in said
    assert "at commit bbbbbbb, with load 0.1 before: burst." in said


def test_ratios_compare_samples_of_the_same_repetition() -> None:
    ours = [sample(100), sample(10), sample(50)]
    floor = [sample(200), sample(20), sample(10)]
    assert ratio(ours, floor, speed) == 0.5
    assert ratio([sample(1, 30, 20)], [sample(1, 20, 5)], cpu) == 2.0


def test_the_short_form_has_sizes_for_loads_but_measures_them_only_by_name() -> None:
    assert "schedules" not in bench_main.chosen(forms.SHORT, None)
    assert bench_main.chosen(forms.SHORT, ["idle", "schedules"]) == ["schedules", "idle"]
    assert bench_main.without_size(forms.PLAIN) >= {"schedules", "pinned"}
    assert not bench_main.without_size(forms.FULL)


def test_contestants_run_in_turns() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Sample:
        calls.append(name)
        return Sample(1, 1, 1, 1)

    samples = compete([("a", lambda: contestant("a")), ("b", lambda: contestant("b"))], 2)
    assert calls == ["a", "b", "a", "b"]
    assert {name: len(of) for name, of in samples.items()} == {"a": 2, "b": 2}


def test_statements_of_one_database_are_counted_in_the_log() -> None:
    lines = [
        "bench_1 LOG:  statement: BEGIN ISOLATION LEVEL READ COMMITTED",
        "bench_1 LOG:  execute _pg3_1: -- Claims what is due.",
        "\tSELECT 1",
        "bench_1 DETAIL:  Parameters: $1 = 'LOG:  statement: SELECT 2'",
        "bench_1 LOG:  execute <unnamed>: -- Claims what is due.",
        "bench_2 LOG:  statement: SELECT 3",
        " LOG:  checkpoint starting: time",
    ]
    assert idle.count_statements("bench_1", lines) == {
        "BEGIN ISOLATION LEVEL READ COMMITTED": 1,
        "-- Claims what is due.": 2,
    }


def test_a_measurement_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Bench) -> None:
        raise RuntimeError("3 executions were due, 2 ran")

    described = {key: REPORT[key] for key in ("versions", "cores", "processor", "load_before")}
    monkeypatch.setattr(environment, "describe", lambda _: described)
    monkeypatch.setattr(
        bench_main, "MEASUREMENTS", {"burst": fail, "startup": lambda _: {"help_ms": 1}}
    )
    output = tmp_path / "build" / "bench.json"
    bench = Bench(Server("", tmp_path), forms.SHORT, None, None)
    result = bench_main.run(bench, ["burst", "startup"], output)
    assert result["failures"] == {"burst": "RuntimeError: 3 executions were due, 2 ran"}
    assert result["measurements"] == {"startup": {"help_ms": 1}}
    assert json.loads(output.read_text("utf-8")) == json.loads(json.dumps(result))
    assert {*result["runs"]["startup"]} == {"load_before", "seconds"}
