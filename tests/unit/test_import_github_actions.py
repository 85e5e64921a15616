"""Workflows of GitHub Actions: their schedules by GitHub's documentation, and their dispatch."""

import random
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cronledger.rules import cron
from cronledger.sources import toml
from cronledger.sources.github_actions import Options, read_schedule, read_workflows
from cronledger.sources.imported import Import, NotImportedError, checked, render
from tests.unit.support import robfig_model
from tests.unit.support.imports import loaded_of, notes, run_import
from tests.unit.support.mutations import mutated

YEAR = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)


def schedules(count: int) -> Iterator[str]:
    draw = random.Random(4)
    for _ in range(count):
        fields = []
        for number, (low, high) in enumerate(robfig_model.BOUNDS):
            first = draw.randint(low, high)
            last = draw.randint(min(first + 1, high), high)
            step = draw.choice([5, 7, 15])
            forms = [f"{first}", f"{first},{last}"]
            forms += [f"{first}-{last}"] if first < last else []
            # POSIX does not define how a step combines with the other day field.
            forms += [] if number in (2, 4) else [f"{first}/{step}", f"*/{step}"]
            fields.append("*" if draw.random() < 0.4 and number else draw.choice(forms))
        yield " ".join(fields)


@pytest.mark.long
def test_schedules_fire_as_documented_for_a_year() -> None:
    """Both documentations agree on `*`, lists, ranges, steps such as `20/15`, and the two days."""
    for text in schedules(150):
        expected = robfig_model.firings(text, "UTC", *YEAR)
        try:
            spec = cron.parse(read_schedule(text))
        except cron.CronError:
            assert expected == [], text
            continue
        assert list(spec.plan_times(*YEAR)) == expected, text


@pytest.mark.parametrize("text", ["@daily", "0 0 * *", "0 0 * * 7", "~ 0 * * *", "0 0 L * *"])
def test_schedules_that_github_does_not_document_are_left_out(text: str) -> None:
    with pytest.raises(NotImportedError):
        read_schedule(text)


WORKFLOW = """\
name: Nightly build
on:
  schedule:
    - cron: '30 5 * * 1-5'
    - cron: '20/15 4 * * SUN'
      timezone: America/New_York
  workflow_dispatch:
jobs:
  build: {runs-on: ubuntu-latest, steps: [{run: make}]}
"""


def read(text: str, file: str = "nightly.yml") -> Import:
    return checked(read_workflows([(file, text)], Options("acme/shop", "trunk")))


def jobs(imported: Import) -> dict[str, dict[str, Any]]:
    return dict(tomllib.loads(render(imported)).get("jobs", {}))


def test_each_schedule_becomes_a_job_that_dispatches_the_workflow() -> None:
    imported = read(WORKFLOW)
    assert imported.complete
    first, second = jobs(imported).values()
    assert first == {
        "schedule": "30 5 * * 1-5", "timezone": "UTC", "overlap": "allow", "catch_up": "latest",
        "http": {
            "url": "https://api.github.com/repos/acme/shop/actions/workflows/nightly.yml/dispatches",
            "method": "POST", "body": {"ref": "trunk"},
            "headers": {
                "Accept": "application/vnd.github+json",
                "Authorization": {"env": "GITHUB_TOKEN", "prefix": "Bearer "},
            },
        },
    }  # fmt: skip
    assert (second["schedule"], second["timezone"]) == ("20-59/15 4 * * SUN", "America/New_York")
    assert [*jobs(imported)] == ["nightly-build", "nightly-build-2"]


@pytest.mark.parametrize(
    ("old", "new", "kind", "told"),
    [
        ("  workflow_dispatch:\n", "", "changed", "has no workflow_dispatch"),
        ("  workflow_dispatch:\n", "  workflow_dispatch: {inputs: {env: {required: true}}}\n",
         "changed", "the input env is required"),
        ("run: make", "run: '${{ github.event.schedule }}'", "changed", "no github.event.schedule"),
        ("30 5 * * 1-5", "*/2 * * * *", "info", "at most every 5 minutes"),
        ("30 5 * * 1-5", "@daily", "dropped", "no @ schedules"),
        ("cron: '30 5 * * 1-5'", "crn: x", "dropped", "no text `cron`"),
        ("America/New_York", "Mars/Base", "dropped", "Mars/Base"),
    ],
)  # fmt: skip
def test_what_differs_is_noted(old: str, new: str, kind: str, told: str) -> None:
    imported = read(WORKFLOW.replace(old, new))
    assert told in notes(imported, kind)
    assert imported.complete is (kind == "info")


run = partial(run_import, "github-actions")


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    (tmp_path / "build.yaml").write_text(WORKFLOW.replace("'30 5 * * 1-5'", '"@daily"'))
    output = tmp_path / "c.toml"
    ended = run(tmp_path / "build.yaml", "--repository", "acme/shop", "-o", output)
    assert ended.exit_code == 1
    assert "build.yaml:1: not imported: '@daily'" in ended.stderr
    (job,) = toml.load(output).jobs
    assert job.target["body"] == {"ref": "main"}
    assert run("-", "--repository", "acme", stdin=WORKFLOW).exit_code == 2
    assert "not YAML" in run("-", "--repository", "a/b", stdin="on: *").stderr
    assert "0 jobs" in run("-", "--repository", "a/b", stdin="on: push\n").stderr


@pytest.mark.slow
def test_mutated_workflows_end_with_a_result_or_a_clear_error(tmp_path: Path) -> None:
    count, _ = loaded_of(mutated(WORKFLOW, 2000), read, tmp_path)
    assert 100 < count < 1900
