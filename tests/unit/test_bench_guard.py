"""The guard against rising cost judges ratios by those that are recorded."""

from pathlib import Path

import pytest

from tests.bench import guard

pytestmark = pytest.mark.tools

RECORDED = {"cpu_10": 20.0, "blocks": 18.0}


def test_a_ratio_more_than_half_above_the_recorded_one_is_a_fault_and_names_what_to_do() -> None:
    assert guard.faults({"cpu_10": 30.0, "blocks": 9.0}, RECORDED) == []
    assert len(guard.faults({"cpu_10": 1.0, "cpu_100": 1.0}, RECORDED)) == 2
    (fault,) = guard.faults({"cpu_10": 30.1, "blocks": 18.0}, RECORDED)
    assert "cpu_10: 30.1" in fault
    assert "make bench RECORD=1" in fault


def test_the_recorded_ratios_are_those_that_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = {"blocks", "cpu_lone", *(f"cpu_{slots}" for slots in guard.BACKLOGS)}
    assert {*guard.recorded()} == measured
    monkeypatch.setattr(guard, "RECORDED", tmp_path / "ratios.json")
    guard.record(RECORDED)
    assert guard.recorded() == RECORDED
