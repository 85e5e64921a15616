"""CronJobs: their schedules beside a model of Kubernetes' rules, and what becomes of a manifest."""

import random
import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from cronledger.rules import cron
from cronledger.sources import toml
from cronledger.sources.imported import Import, NotImportedError, checked, render
from cronledger.sources.kubernetes import Options, read_manifests
from cronledger.sources.robfig import read_schedule
from tests.unit.support import robfig_model
from tests.unit.support.imports import loaded_of, notes, run_import
from tests.unit.support.mutations import mutated
from tests.unit.support.planning import at, job, planned

YEAR = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
FIELDS = robfig_model.BOUNDS


def schedules(seed: int, count: int) -> Iterator[str]:
    """Yield schedules that Kubernetes accepts, and some that it refuses."""
    draw = random.Random(seed)
    for _ in range(count):
        if draw.random() < 0.05:
            yield draw.choice([*robfig_model.DESCRIPTORS, "@reboot", "@weekdays"])
        else:
            yield " ".join(_field(draw, number) for number in range(5))


def _field(draw: random.Random, number: int) -> str:
    if draw.random() < (0.2 if number == 0 else 0.5):
        return draw.choice(["*", "*", "?"])
    return ",".join(_item(draw, number) for _ in range(draw.choice([1, 1, 2])))


def _item(draw: random.Random, number: int) -> str:
    low, high = FIELDS[number]
    names = list(robfig_model.NAMES.get(number, {}))
    if names and draw.random() < 0.2:
        return draw.choice([names[0], names[3].upper(), f"{names[1]}-{names[4]}"])
    first = draw.randint(low, high + (draw.random() < 0.03))
    last = max(first, draw.randint(low, high + (draw.random() < 0.03)))
    step = draw.choice([1, 2, 3, 7, 20, 90])
    return draw.choice(
        [f"{first}", f"{first}-{last}", f"*/{step}", f"{first}/{step}", f"{first}-{last}/{step}"]
    )


def ours(text: str, zone: str) -> list[datetime]:
    found = read_schedule(text)
    spec = cron.parse(found.text, timezone=zone, dst_gap="skip", dst_fold="both")
    return list(spec.plan_times(*YEAR))


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_schedules_fire_as_in_kubernetes_for_a_year(zone: str) -> None:
    refused = 0
    for text in schedules(ZONES.index(zone), 80):
        try:
            expected = robfig_model.firings(text, zone, *YEAR)
        except robfig_model.Refused:
            refused += 1
            with pytest.raises(NotImportedError):
                read_schedule(text)
            continue
        try:
            assert ours(text, zone) == expected, text
        except cron.CronError as error:
            assert "never" in str(error), text
            assert not expected
    assert refused < 30


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0 3 */2 * 1", "0 3 1-31/2 * 1"),  # the 1st, 3rd, … or a Monday; in cron: and
        ("0 3 ? * 1-5", "0 3 * * 1-5"),
        ("5/20 0 1,* * 1", "5-59/20 0 * * 1"),
        ("*/90 2-2 * * *", "0 2 * * *"),
        ("@every 1h30m", "@every 5400s"),
        ("@every 1.5s", "@every 1s"),
        ("@every 10ms", "@every 1s"),
    ],
)
def test_schedules_are_written_so_that_they_mean_the_same(text: str, written: str) -> None:
    assert read_schedule(text).text == written


@pytest.mark.parametrize(
    "text",
    ["0 0 * * 7", "0 0 * * 5-1", "0 0 0 * *", "*/0 * * * *", "* * * *", "@every x", "L * * * *"],
)
def test_schedules_that_kubernetes_refuses_are_left_out(text: str) -> None:
    with pytest.raises(NotImportedError):
        read_schedule(text)


MANIFEST = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup, namespace: db}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  concurrencyPolicy: Forbid
  startingDeadlineSeconds: 600
  jobTemplate:
    spec:
      backoffLimit: 2
      template:
        spec:
          containers:
          - name: backup
            image: postgres:15
            command: [sh, -c]
            args: ["pg_dump $(DB) > $$(date) $(NONE)"]
            workingDir: /srv
            env:
            - {name: DB, value: shop}
            - {name: API_TOKEN, value: hunter2}
            - name: PGPASSWORD
              valueFrom: {secretKeyRef: {name: pg-auth, key: password}}
"""


def read(text: str, **options: Any) -> Import:
    return checked(read_manifests([("m.yaml", text)], Options(**options)))


def only(text: str, **options: Any) -> dict[str, Any]:
    """Return the table of the only job, as a file has it."""
    (table,) = tomllib.loads(render(read(text, **options)))["jobs"].values()
    return dict(table)


def edited(**edits: Any) -> str:
    """Return the manifest with other values; a key is a path such as `spec__suspend`."""
    document = yaml.safe_load(MANIFEST)
    for path, value in edits.items():
        table, (*above, key) = document, path.split("__")
        for one in above:
            table = table[int(one) if one.isdecimal() else one]
        table[key] = value
    return yaml.safe_dump(document)


POD = "spec__jobTemplate__spec__template__spec"
CONTAINER = f"{POD}__containers__0"


def test_a_cron_job_becomes_a_job_that_runs_the_command_of_its_pod() -> None:
    imported = read(MANIFEST, secret_names=("token",))
    assert only(MANIFEST) == {
        "schedule": "0 3 * * *", "timezone": "Europe/Berlin", "dst_gap": "skip", "dst_fold": "both",
        "command": ["sh", "-c", "pg_dump shop > $(date) $(NONE)"], "cwd": "/srv",
        "env": {
            "DB": "shop", "API_TOKEN": "hunter2", "PGPASSWORD": {"env": "K8S_PG_AUTH_PASSWORD"},
        },
        "overlap": "wait", "grace": "600s", "catch_up": "skip", "run_timeout": "none",
        "stale_timeout": "10m",
        "max_attempts": 3, "retry_backoff": ["10s", "20s"], "allow_stale_reentry": True,
    }  # fmt: skip
    assert imported.complete
    told = notes(imported, "info")
    for part in ("image postgres:15", "K8S_PG_AUTH_PASSWORD", "API_TOKEN is probably a secret"):
        assert part in told
    assert "#   startingDeadlineSeconds: 600\n" in render(imported)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ({"spec__startingDeadlineSeconds": None},
         {"grace": None, "catch_up": "latest", "catch_up_window": "365d"}),
        ({"spec__startingDeadlineSeconds": 0}, {"catch_up": "skip", "grace": "0s"}),
        ({"spec__concurrencyPolicy": "Replace"}, {"overlap": "replace"}),
        ({"spec__timeZone": None}, {"timezone": "UTC", "dst_gap": None}),
        ({"spec__timeZone": None, "spec__schedule": "CRON_TZ=Asia/Tokyo 0 3 * * *"},
         {"timezone": "Asia/Tokyo", "schedule": "0 3 * * *"}),
        ({"spec__suspend": True}, {"schedule": None, "overlap": "wait"}),
        ({"spec__jobTemplate__spec__backoffLimit": 0}, {"max_attempts": None}),
        ({"spec__jobTemplate__spec__backoffLimit": None},
         {"max_attempts": 7, "retry_backoff": ["10s", "20s", "40s", "80s", "160s", "320s"]}),
        ({"spec__jobTemplate__spec__activeDeadlineSeconds": 60}, {"run_timeout": "60s"}),
        ({f"{CONTAINER}__args": None}, {"command": ["sh", "-c"]}),
    ],
)  # fmt: skip
def test_each_policy_has_its_equivalent(edits: dict[str, Any], expected: dict[str, Any]) -> None:
    table = only(edited(**edits))
    assert {key: table.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ({"spec__suspend": True}, "the CronJob is suspended"),
        ({f"{POD}__initContainers": [{}]}, "initContainers are omitted"),
        ({f"{CONTAINER}__volumeMounts": [{}]}, "volumeMounts are omitted"),
        ({f"{CONTAINER}__envFrom": [{}]}, "envFrom is omitted"),
        ({f"{CONTAINER}__env": [{"name": "N", "valueFrom": {"fieldRef": {}}}]}, "N comes from"),
        ({"spec__jobTemplate__spec__completions": 3}, "completions is not 1"),
        ({"spec__jobTemplate__spec__activeDeadlineSeconds": 60}, "bounds all attempts together"),
        ({f"{CONTAINER}__args": ["$(PGPASSWORD)"]}, "$(PGPASSWORD) is not expanded"),
    ],
)  # fmt: skip
def test_what_differs_is_noted_and_is_not_complete(edits: dict[str, Any], told: str) -> None:
    imported = read(edited(**edits))
    assert told in notes(imported, "changed")
    assert not imported.complete
    assert imported.sources[0].jobs == 1


@pytest.mark.parametrize(
    ("edits", "told"),
    [
        ({"spec": None}, "spec.schedule is missing"),
        ({"spec__schedule": 5}, "schedule is not a text"),
        ({"spec__schedule": "0 0 30 2 *"}, "never occurs"),
        ({"spec__schedule": "TZ=UTC 0 3 * * *"}, "has a zone beside timeZone"),
        ({"spec__timeZone": "Europe/Berln"}, "Europe/Berlin"),
        ({"spec__concurrencyPolicy": "forbid"}, "concurrencyPolicy 'forbid' is unknown"),
        ({"spec__startingDeadlineSeconds": True}, "startingDeadlineSeconds is not a whole number"),
        ({f"{POD}__containers": []}, "the pod has 0 containers"),
        ({f"{CONTAINER}__command": None}, "the container has no command"),
        ({f"{CONTAINER}__command": [1]}, "command contains values that are not texts"),
        ({f"{CONTAINER}__workingDir": "srv"}, "is not an absolute path"),
    ],
)  # fmt: skip
def test_what_has_no_equivalent_is_left_out_with_the_reason(
    edits: dict[str, Any], told: str
) -> None:
    imported = read(edited(**edits))
    assert told in notes(imported, "dropped")
    assert imported.sources[0].jobs == 0


@pytest.mark.parametrize("deadline", [None, 0, 60, 600, 1200, 7200])
@pytest.mark.parametrize("now", ["09:00:01", "09:01", "09:09:59", "09:20", "09:29", "10:15"])
def test_after_an_outage_the_runs_are_those_of_the_controller(
    deadline: int | None, now: str
) -> None:
    """Kubernetes: start the newest missed time, unless it is later than its deadline."""
    edits = {"spec__schedule": "*/10 * * * *", "spec__startingDeadlineSeconds": deadline}
    table = only(edited(**edits))
    kept = {key: table[key] for key in ("grace", "catch_up", "catch_up_window") if key in table}
    newest = at(now) - timedelta(seconds=at(now).timestamp() % 600)
    in_time = deadline is None or newest + timedelta(seconds=deadline) >= at(now)
    plan = planned("08:50", now, job("*/10 * * * *", **kept))
    assert [run.plan_time for run in plan.runs] == ([newest] if in_time else [])


def test_lists_and_the_output_of_helm_are_read() -> None:
    item = "- " + "  ".join(MANIFEST.splitlines(keepends=True))
    listed = f"kind: List\nitems:\n{item}- kind: Service\n"
    stream = f"---\n# Source: x\n---\nkind: Secret\n---\n{MANIFEST}---\n{listed}"
    imported = read(stream)
    assert [*tomllib.loads(render(imported))["jobs"]] == ["db-backup", "db-backup-2"]
    lines = [int(entry.place.rpartition(":")[2]) for entry in imported.sources[0].entries]
    assert [stream.splitlines()[line - 1].lstrip("- ") for line in lines] == [
        "apiVersion: batch/v1"
    ] * 2


run = partial(run_import, "kubernetes")


def test_the_command_reads_standard_input_and_writes_a_private_file(tmp_path: Path) -> None:
    ended = run("-", "--timezone", "Asia/Tokyo", "-o", tmp_path / "c.toml", stdin=MANIFEST)
    assert ended.exit_code == 0
    assert ended.stderr.endswith("-: 1 job\n")
    assert (tmp_path / "c.toml").stat().st_mode & 0o777 == 0o600
    (job,) = toml.load(tmp_path / "c.toml").jobs
    assert job.name == "db-backup"
    broken = run("-", stdin=edited(spec__schedule="0 0 * * 7"))
    assert broken.exit_code == 1
    assert "-:1: not imported: day of week '7'" in broken.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: CronJob\nspec: {schedule: */5 * * * *}", "is not YAML: line 2, column 19: "),
        ("kind: {{ .Values.kind }}\n", "helm template"),
        ("a: " + "[" * 500, "nested too deeply"),
        ("a: 2026-02-30", "is not YAML"),
        ("a: \x07", "is not YAML"),
    ],
)  # fmt: skip
def test_texts_that_are_not_yaml_are_refused(text: str, told: str) -> None:
    ended = run("-", stdin=text)
    assert ended.exit_code == 2
    assert told in ended.stderr
    assert "FILE '-'" in ended.stderr


def test_merges_that_multiply_are_merged_once() -> None:
    names = "abcdefghijklmnop"
    text = "a: &a {k: 1}\n" + "".join(
        f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
        for before, name in pairwise(names)
    )
    assert run("-", stdin=text).exit_code == 0


@pytest.mark.slow
def test_mutated_manifests_end_with_a_result_or_a_clear_error(tmp_path: Path) -> None:
    stream = (
        f"{MANIFEST}---\nkind: List\nitems:\n- {{kind: CronJob, spec: {{schedule: '@daily'}}}}\n"
    )
    count, refused = loaded_of(mutated(stream, 2000), read, tmp_path)
    assert 100 < count < 1900
    assert all(re.fullmatch(r"is .+", error.problem) for error in refused)
