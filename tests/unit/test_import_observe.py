"""`import … --observe`: the jobs stay in their scheduler, and each gets what reports its runs."""

import subprocess
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.combining import OrTrigger
from apscheduler.triggers.cron import CronTrigger
from celery.schedules import crontab
from click.testing import Result

from cronledger.rules import cron
from cronledger.sources import apscheduler_jobs, celery_beat, observed, pg_cron, toml
from cronledger.sources.celery_beat import BeatEntry
from cronledger.sources.crontab_words import split_percent
from cronledger.sources.imported import Entry, Import, checked, render
from tests.unit.support.imports import run_import

NIGHTLY = {"observed": True, "run_timeout": "24h", "timezone": "Europe/Berlin"}
CRON_JOB = """\
kind: CronJob
metadata: {name: backup, namespace: ops}
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Berlin
  startingDeadlineSeconds: 600
  jobTemplate:
    spec:
      activeDeadlineSeconds: 3600
      template:
        spec:
          containers:
          - {name: backup, command: [pg_dump, "--file=/a b"], args: [shop]}
"""
TIMER = "[Timer]\nOnCalendar=*-*-* 03:30\nRandomizedDelaySec=10min\n"
SERVICE = "[Service]\nDescription=Backup\nType=oneshot\nTimeoutStartSec=1h\nNice=19\n"


def run(tmp_path: Path, kind: str, *arguments: str, stdin: str = "") -> Result:
    """Run an import whose jobs a file may have."""
    output = ("-o", tmp_path / "c.toml", "--force")
    ended = run_import(kind, "--observe", *output, *arguments, stdin=stdin)
    assert ended.exit_code in (0, 1), ended.output
    assert all(job.handler == "observed" for job in toml.load(tmp_path / "c.toml").jobs)
    return ended


def tables(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = tomllib.loads(text).get("jobs", {})
    return found


def wrapper(text: str) -> str:
    """Return what the comment of the only job tells people to write."""
    (comment,) = text.split("# To report its runs:\n#\n")[1:]
    lines = comment.partition("\n[jobs.")[0].splitlines()
    return "\n".join(line.removeprefix("# ") for line in lines)


def of_crontab(tmp_path: Path, text: str, *arguments: str) -> str:
    given = arguments or ("-", "--user")
    run(tmp_path, "crontab", "--timezone", "Europe/Berlin", *given, stdin=text)
    return (tmp_path / "c.toml").read_text()


def of_systemd(tmp_path: Path, timer: str, service: str) -> tuple[int, str]:
    (tmp_path / "backup.timer").write_text(timer)
    (tmp_path / "backup.service").write_text(service)
    ended = run(tmp_path, "systemd", "--timezone", "Europe/Berlin", str(tmp_path))
    return ended.exit_code, (tmp_path / "c.toml").read_text()


def test_an_entry_of_a_crontab_becomes_an_observed_job_F121(tmp_path: Path) -> None:
    text = of_crontab(
        tmp_path, "MAILTO=a@b.c\nTOKEN=x\nRANDOM_DELAY=5\n30 2 * * *\t/bin/backup --full\n"
    )
    assert tables(text) == {"backup-full": {**NIGHTLY, "schedule": "30 2 * * *", "grace": "6m"}}
    assert (
        wrapper(text) == f"30 2 * * *\t{observed.PROGRAM} observe backup-full -- /bin/backup --full"
    )
    assert "channels" not in tomllib.loads(text)


def test_the_user_and_the_flags_of_an_entry_stay_before_the_wrapper_F121(tmp_path: Path) -> None:
    text = of_crontab(tmp_path, "@daily root  -n -q /bin/backup\n", "-", "--system", "--as-user")
    assert wrapper(text) == f"@daily root  -n -q {observed.PROGRAM} observe backup -- /bin/backup"


@pytest.mark.parametrize("shell", ["", "SHELL=/bin/bash\n"])
@pytest.mark.parametrize(
    "command",
    [
        "/bin/echo plain --word=1 a,b", "cd / && pwd; false", "X=1 env | grep ^X=",
        "echo 'it''s' \"$HOME\" > /dev/stdout 2>&1", r"/bin/echo 100\% done",
        "sort | head -1%b%a%", "/bin/sh -c 'exit 7'",
    ],
)  # fmt: skip
def test_a_wrapped_line_does_what_the_line_did_F121(
    tmp_path: Path, command: str, shell: str
) -> None:
    """As cron runs them. The program is one that only runs the command."""
    program = tmp_path / "cronledger"
    program.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    program.chmod(0o755)
    text = of_crontab(tmp_path, f"{shell}30 2 * * * {command}\n")
    line = wrapper(text).replace(observed.PROGRAM, str(program), 1)
    assert line != wrapper(text)
    interpreter = shell.strip().removeprefix("SHELL=") or "/bin/sh"
    before, after = (as_cron(interpreter, one) for one in (command, line.split(" ", 5)[5]))
    assert before == after


def as_cron(shell: str, text: str) -> tuple[int, bytes, bytes]:
    command, given = split_percent(text)
    stdin = "".join(f"{line}\n" for line in given).encode()
    ended = subprocess.run([shell, "-c", command], input=stdin, capture_output=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_job_of_several_hosts_has_a_scope_for_each_F121(tmp_path: Path) -> None:
    for host, line in (("web1", "0 4 * * * /bin/a\n"), ("web2", "0 4 * * * /bin/a\n")):
        (tmp_path / host).write_text(line + "0 5 * * * /bin/b\n" * (host == "web1"))
    files = [f"{host}={tmp_path / host}" for host in ("web1", "web2")]
    text = of_crontab(tmp_path, "", "--user", *files)
    for_each = {"scope_kind": "machine", "scopes": ["web1", "web2"]}
    kept = ("scope_kind", "scopes", "on", "every")
    assert {
        name: {key: job[key] for key in kept if key in job} for name, job in tables(text).items()
    } == {"a": for_each, "b": {}}
    assert f"# 0 4 * * * {observed.PROGRAM} observe --scope machine/web2 a -- /bin/a\n" in text
    assert f"# 0 5 * * * {observed.PROGRAM} observe b -- /bin/b\n" in text


def test_times_that_nobody_knows_beforehand_are_no_schedule_F121(tmp_path: Path) -> None:
    ended = run(tmp_path, "crontab", "-", "--user", stdin="@90 /bin/a\n5~50 3 * * * /bin/b\n")
    assert ended.exit_code == 1
    assert ended.stderr.count("the job has no schedule") == 2
    assert [job.schedule for job in toml.load(tmp_path / "c.toml").jobs] == [None, None]


@pytest.mark.parametrize("schedule", ["* * * * *", "@hourly"])
def test_grace_is_shorter_than_the_time_between_two_plan_times_F121(
    tmp_path: Path, schedule: str
) -> None:
    of_crontab(tmp_path, f"RANDOM_DELAY=1\n{schedule} /bin/a\n")
    (job,) = toml.load(tmp_path / "c.toml").jobs
    assert timedelta(0) < job.grace < cron.parse(schedule).shortest_period


def test_a_cronjob_gets_a_patch_that_wraps_its_command_F121(tmp_path: Path) -> None:
    ended = run(tmp_path, "kubernetes", "-", stdin=CRON_JOB)
    assert ended.exit_code == 0
    text = (tmp_path / "c.toml").read_text()
    assert tables(text) == {"ops-backup": {
        **NIGHTLY, "schedule": "0 3 * * *", "dst_gap": "skip", "dst_fold": "both",
        "grace": "10m", "run_timeout": "3600s",
    }}  # fmt: skip
    patch = yaml.safe_load(wrapper(text))
    assert patch["metadata"] == {"name": "backup", "namespace": "ops"}
    (container,) = patch["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "backup"
    wrapped = ["cronledger", "observe", "ops-backup", "--", "pg_dump", "--file=/a b"]
    assert container["command"] == wrapped
    assert "args" not in container, "those of the CronJob stay"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('command: [pg_dump, "--file=/a b"], ', "", "its image decides what runs"),
        ("args: [shop]}", "args: [shop]}\n          - {name: log}", "the patch wraps the first"),
        ("schedule:", "suspend: true\n  schedule:", "the CronJob is suspended"),
    ],
)
def test_what_a_patch_cannot_do_is_noted_F121(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    ended = run(tmp_path, "kubernetes", "-", stdin=CRON_JOB.replace(old, new))
    assert ended.exit_code == 1
    assert told in ended.stderr
    assert tables((tmp_path / "c.toml").read_text())


@pytest.mark.parametrize(
    ("starts", "wrapped"),
    [
        ("-:/bin/a ${X} '%i'", ["-:{} -- /bin/a ${X} '%i'"]),
        ("|/bin/a | b", ["{} -- /bin/sh -c '/bin/a | b'"]),
        ("/bin/a\nExecStart=+/bin/b c", ["/bin/a", "+{} -- /bin/b c"]),
        ("@/bin/a name 'b c'", ["{} -- /bin/a 'b c'"]),
    ],
)
def test_a_service_gets_a_drop_in_that_wraps_its_command_F121(
    tmp_path: Path, starts: str, wrapped: list[str]
) -> None:
    code, text = of_systemd(tmp_path, TIMER, f"{SERVICE}ExecStart={starts}\n")
    assert tables(text) == {"backup": {
        **NIGHTLY, "description": "Backup", "schedule": "30 3 * * *", "dst_gap": "skip",
        "grace": "12m", "run_timeout": "3600s",
    }}  # fmt: skip
    program = f"{observed.PROGRAM} observe backup"
    place, *lines = wrapper(text).splitlines()
    assert place == "/etc/systemd/system/backup.service.d/cronledger.conf:"
    expected = [f"ExecStart={one}" for one in ["", *wrapped]]
    assert lines[2:] == [line.replace("{}", program) for line in expected]
    assert code == (len(wrapped) > 1 or starts.startswith("@"))


@pytest.mark.parametrize(
    ("timer", "service", "told"),
    [
        ("OnCalendar=daily\nOnCalendar=12:00\n", "ExecStart=/a\n", "which of these 2 schedules"),
        ("OnCalendar=daily\n", "ExecStart=/a ; /b\n", "write each on a line of its own"),
        ("OnCalendar=daily\n", "Type=oneshot\n", "has no ExecStart"),
    ],
)
def test_what_a_drop_in_cannot_do_is_noted_F121(
    tmp_path: Path, timer: str, service: str, told: str
) -> None:
    code, text = of_systemd(tmp_path, f"[Timer]\n{timer}", f"[Service]\n{service}")
    assert code == 1
    assert told in text
    assert not any("schedule" in job for job in tables(text).values())


def only(imported: Import) -> Entry:
    (entry,) = checked(observed.observed(imported)).sources[0].entries
    return entry


def of_pg_cron(**changes: Any) -> Entry:
    row = pg_cron.Row(7, "Tidy", "30 3 * * *", "SELECT 1", "localhost", "shop", "jo", True)
    options = pg_cron.Options("shop", observe=True)
    return only(pg_cron.convert([row._replace(**changes)], options))


def test_a_job_of_pg_cron_gets_a_statement_that_changes_its_command_F121() -> None:
    entry = of_pg_cron(command="SELECT '$statement$', '$command$', $$x$$")
    kept = {"schedule": "30 3 * * *", "grace": "2m", "labels": {"pg_cron": "7"}}
    assert kept.items() <= entry.jobs["tidy"].items()
    assert entry.notes == ()
    assert entry.wrapper.startswith("SELECT cron.alter_job(7, command => $command2$DO $observe$")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": "do 'begin rollback; end'"}, "may not run in a transaction"),
        ({"database": "stock"}, "belongs to database stock"),
        ({"schedule": "30 seconds"}, "the job has no schedule"),
    ],
)
def test_what_a_command_of_pg_cron_cannot_report_is_noted_F121(
    changes: dict[str, Any], told: str
) -> None:
    entry = of_pg_cron(**changes)
    assert [note.kind for note in entry.notes if told in note.message] == ["changed"]
    assert entry.jobs["tidy"]["observed"]
    assert bool(entry.wrapper) == ("schedule" in changes)


def test_an_entry_of_beat_gets_a_header_F121() -> None:
    beat = BeatEntry("a report", {"task": "t", "schedule": crontab("0", "6")}, "Asia/Tokyo")
    entry = only(celery_beat.convert("shop:app", "test", [beat], observe=True))
    assert entry.wrapper == '"headers": {"cronledger_job": "a-report"}'
    timing = {"schedule": "0 6 * * *", "timezone": "Asia/Tokyo", "grace": "5m", "observed": True}
    assert timing.items() <= entry.jobs["a-report"].items()
    assert "payload" not in render(Import("x", ())) + str(entry.jobs)


def test_a_job_of_apscheduler_gets_an_item_of_the_mapping_F121() -> None:
    scheduler = BackgroundScheduler(timezone="UTC")
    trigger = OrTrigger([CronTrigger(hour=3), CronTrigger(hour=4, minute=30)])
    scheduler.add_job(lambda: None, CronTrigger(hour=3), id="tidy Up", misfire_grace_time=60)
    scheduler.add_job(lambda: None, trigger, id="twice")
    scheduler.add_job(lambda: None, CronTrigger(hour=5))
    jobs = apscheduler_jobs.jobs_of(scheduler)
    imported = apscheduler_jobs.convert(
        "test", jobs, datetime(2031, 1, 1, tzinfo=UTC), observe=True
    )
    tidy, twice, unnamed = checked(observed.observed(imported)).sources[0].entries
    assert tidy.wrapper == "'tidy Up': 'tidy-up'"
    assert {"schedule": "0 3 * * *", "grace": "2m"}.items() <= tidy.jobs["tidy-up"].items()
    assert twice.wrapper == "'twice': 'twice'"
    assert [*twice.jobs] == ["twice"]
    assert "schedule" not in twice.jobs["twice"]
    assert [*tidy.notes] == []
    assert [(note.kind, note.message[:16]) for note in unnamed.notes] == [
        ("changed", "the id is random")
    ]
