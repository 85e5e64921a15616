"""Timers of systemd: their calendar events beside `systemd-analyze`, and what becomes of a unit."""

import random
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cronledger.rules import cron
from cronledger.sources import toml
from cronledger.sources.imported import Import, NotImportedError, Source, checked, render
from cronledger.sources.systemd import Options, read_timer
from cronledger.sources.systemd_calendar import read_calendar, read_span
from cronledger.sources.systemd_units import Unit, split_words
from tests.deploy.support.files import needs
from tests.unit.support.imports import loaded, notes, run_import
from tests.unit.support.mutations import mutated

ANALYZE = "systemd-analyze"
needs_systemd = needs(ANALYZE, "systemd")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
STARTS = ("2027-01-01", "2027-03-13", "2027-03-27", "2027-10-02", "2027-10-30", "2027-11-06")
"""Of windows that begin with the year, and before each clock change of these zones."""
HOUR = timedelta(hours=1)
YEAR_END = datetime(2028, 1, 1, tzinfo=UTC)
BOUNDS = {"hour": (0, 23), "minute": (0, 59), "second": (0, 59), "month": (1, 12), "day": (1, 31)}
SHORTHANDS = ("minutely", "hourly", "daily", "weekly", "monthly", "yearly", "quarterly")


def events(seed: int, count: int) -> Iterator[str]:
    draw = random.Random(seed)

    def component(what: str) -> str:
        if draw.random() < 0.4:
            return "*"
        return ",".join(item(what) for _ in range(draw.choice([1, 1, 2])))

    def item(what: str) -> str:
        low, high = BOUNDS[what]
        first = draw.randint(low, high)
        last = draw.randint(first, high)
        step = draw.choice([1, 2, 3, 7, 25])
        return draw.choice(
            [f"{first}", f"{first:02}", f"{first}..{last}", f"{first}/{step}",
             f"{first}..{last}/{step}"]
        )  # fmt: skip

    days = ("", "", "Mon ", "Mon..Fri ", "Sat,Sun ", "Wednesday,Fri ", "Mon-Wed ", "Sun ")
    dates = (
        lambda: "", lambda: f"*-*-{component('day')} ",
        lambda: f"*-{component('month')}-{component('day')} ", lambda: f"{component('month')}-01 ",
        lambda: "*-*~01 ", lambda: "*-*~7/1 ", lambda: "*-02~1..7 ", lambda: "*-*~03 ",
    )  # fmt: skip
    for _ in range(count):
        if draw.random() < 0.1:
            yield draw.choice(SHORTHANDS)
            continue
        time = f"{component('hour')}:{component('minute')}"
        time += draw.choice(["", "", ":00", ":15", ":0/20", ":05.5"])
        yield f"{draw.choice(days)}{draw.choice(dates)()}{time}"


def theirs(text: str, zone: str, start: str, count: int) -> list[datetime] | None:
    """Return the next instants that systemd computes, or None if it refuses the event."""
    said = subprocess.run(
        [ANALYZE, "calendar", f"--iterations={count}", f"--base-time={start} UTC",
         f"{text} {zone}"],
        capture_output=True, text=True, env={"TZ": "UTC", "LC_ALL": "C"}, check=False,
    )  # fmt: skip
    if said.returncode:
        return None
    found = re.findall(r"(?:Next elapse|Iter\. #\d+): \w+ (\S+ \S+) UTC", said.stdout)
    return [datetime.fromisoformat(f"{one}+00:00") for one in found]


def walls(instants: Iterable[datetime], zone: str) -> list[datetime]:
    return [at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for at in instants]


@needs_systemd
@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_calendar_events_fire_as_in_systemd_for_a_year(zone: str) -> None:
    left_out = compared = 0
    for text in events(ZONES.index(zone), 40):
        elapses = theirs(text, zone, STARTS[0], 400)
        try:
            event = read_calendar(f"{text} {zone}", changes=False)
            spec = cron.parse(event.schedule, timezone=zone, day_or=not event.both, dst_gap="skip")
        except (NotImportedError, cron.CronError) as error:
            assert not elapses or re.search("counts days|whole seconds", str(error)), text
            left_out += 1
            continue
        assert elapses is not None, text
        for start in STARTS:
            expected = elapses if start == STARTS[0] else theirs(text, zone, start, 90) or []
            begin = datetime.fromisoformat(f"{start}T00:00Z")
            found = spec.plan_times(begin, expected[-1] + HOUR if expected else YEAR_END)
            # A repeated time runs once, and systemd chooses which of the two: so compare walls.
            assert walls(found, zone)[: len(expected) or None] == walls(expected, zone), (
                text,
                start,
            )
            compared += len(expected)
    assert left_out < 20
    assert compared > 5000


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("*:0/10", "0-59/10 * * * *"), ("Mon *-*-1..7 4:00", "0 4 1-7 * 1"),
        ("Mon *-*~07/1 00:00", "0 0 * * L1"), ("*-*~01", "0 0 L * *"),
        ("Sat..Sun 10:00:30", "30 0 10 * * 0,6"), ("quarterly", "0 0 1 1,4,7,10 *"),
    ],
)  # fmt: skip
def test_calendar_events_are_written_as_schedules(text: str, schedule: str) -> None:
    assert read_calendar(text, changes=False).schedule == schedule


def test_an_event_whose_clock_changes_begins_no_field_with_a_star() -> None:
    assert read_calendar("*:00", changes=True).schedule == "0 0-23 * * *"
    assert read_calendar("*:00 UTC", changes=True).schedule == "0 * * * *"
    assert read_calendar("*:* Europe/Berlin", changes=False).schedule == "0-59 0-23 * * *"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2027-01-01", "names years"), ("*-*~03", "counts days from the end"), ("", "not valid"),
        ("*-*-* 1:2:3.5", "whole seconds"), ("Fri..Mon", "descending"), ("Fun", "not a weekday"),
        ("25:00", "not in 0-23"),
    ],
)  # fmt: skip
def test_events_without_an_equivalent_are_left_out(text: str, told: str) -> None:
    with pytest.raises(NotImportedError, match=told):
        read_calendar(text, changes=False)


@needs_systemd
def test_time_spans_are_those_of_systemd() -> None:
    for text in ("90", "1h 30min", "2d", "1.5h", "5min20s", "500ms", "1M", "1y", "1 week"):
        said = subprocess.run(
            [ANALYZE, "timespan", text], capture_output=True, text=True, check=True
        )
        (microseconds,) = re.findall(r"(?:μs|us): (\d+)", said.stdout)
        assert read_span(text) == pytest.approx(int(microseconds) / 1e6), text
    with pytest.raises(NotImportedError):
        read_span("1 fortnight")


def test_words_are_split_as_systemd_does() -> None:
    told = r"""/bin/a "b c" 'd "e' f\x20g h\si "\t" '' -x="1 2" """
    assert split_words(told) == ["/bin/a", "b c", 'd "e', "f g", "h i", "\t", "", "-x=1 2"]
    with pytest.raises(NotImportedError, match="has no end"):
        split_words("'a")


TIMER = """\
[Unit]
Description=Nightly backup
[Timer]
OnCalendar=*-*-* 03:30:00
Persistent=true
RandomizedDelaySec=10min
[Install]
WantedBy=timers.target
"""
SERVICE = """\
[Service]
Type=oneshot
User=backup
Environment="DIR=/srv/a b" LEVEL=9
Environment=API_TOKEN=hunter2
WorkingDirectory=/srv
TimeoutStartSec=1h
ExecStart=/usr/bin/backup --level ${LEVEL} \\
    --to $DIR "%p 100%%"
"""


def read(timer: str = TIMER, service: str = SERVICE, **options: Any) -> Import:
    units = Unit("backup.timer"), Unit("backup.service")
    for unit, text in zip(units, (timer, service), strict=True):
        unit.add(text)
    settings = Options(**{"current_user": "backup", **options})
    entry = read_timer(*units, place="backup.timer", options=settings, taken=set())
    return checked(Import("systemd", (Source("units", (entry,)),)))


def tables(imported: Import) -> list[dict[str, Any]]:
    return [*tomllib.loads(render(imported)).get("jobs", {}).values()]


def test_a_timer_becomes_a_job_that_runs_what_its_service_runs() -> None:
    imported = read(timezone="Europe/Berlin", secret_names=("token",))
    assert tables(imported) == [{
        "description": "Nightly backup", "schedule": "30 3 * * *", "timezone": "Europe/Berlin",
        "dst_gap": "skip", "catch_up": "latest", "catch_up_window": "365d", "jitter": "600s",
        "command": ["/usr/bin/backup", "--level", "9", "--to", "/srv/a", "b", "backup 100%"],
        "env": {"DIR": "/srv/a b", "LEVEL": "9", "API_TOKEN": "hunter2"}, "cwd": "/srv",
        "run_timeout": "3600s", "overlap": "skip",
    }]  # fmt: skip
    assert imported.complete
    assert "API_TOKEN is probably a secret" in notes(imported, "info")
    assert "# RandomizedDelaySec=10min\n" in render(imported)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ExecStart=-/bin/a 'b c'", "{ /bin/a 'b c' || :; }"),
        ("ExecStart=@/bin/a name b", ["/bin/a", "b"]),
        ("ExecStart=:/bin/a $LEVEL", ["/bin/a", "$LEVEL"]),
        ("ExecStart=/bin/a $$LEVEL x${LEVEL}", ["/bin/a", "$LEVEL", "x9"]),
        ("ExecStart=/bin/a ; /bin/b", "/bin/a && /bin/b"),
        ("ExecStartPre=/bin/p\nExecStart=/bin/a", "/bin/p && /bin/a"),
        ("ExecStart=/bin/a\nExecStart=\nExecStart=/bin/b", ["/bin/b"]),
    ],
)
def test_each_form_of_a_command_is_kept(line: str, command: str | list[str]) -> None:
    imported = read(service=f"[Service]\nType=oneshot\nUser=backup\nEnvironment=LEVEL=9\n{line}\n")
    assert tables(imported)[0]["command"] == command
    assert imported.complete


@pytest.mark.parametrize(
    ("event", "lease"), [("daily", "10m"), ("hourly", "10m"), ("*:0/30", None)]
)
def test_a_job_without_a_limit_survives_a_restart_of_the_database(
    event: str, lease: str | None
) -> None:
    service = SERVICE.replace("TimeoutStartSec=1h\n", "")
    (job,) = tables(read(f"[Timer]\nOnCalendar={event}\n", service))
    assert (job["run_timeout"], job.get("stale_timeout")) == ("none", lease)


def test_a_user_is_noted_or_changed_to() -> None:
    assert "runs the service as backup" in notes(read(current_user="root"), "changed")
    switched = read(current_user="root", as_user=True)
    assert switched.complete
    assert tables(switched)[0]["command"][:4] == ["runuser", "-u", "backup", "--"]


@pytest.mark.parametrize(
    ("timer", "service", "told"),
    [
        ("OnCalendar=12:00\n", "", "2 schedules"),
        ("RandomizedDelaySec=2d\n", "", "jitter is omitted"),
        ("", "Nice=19\nProtectSystem=full\n", "Nice, ProtectSystem"),
        ("", "EnvironmentFile=/etc/x\nExecStart=/a $X\n", "X is not in Environment"),
        ("", "ExecStart=+/bin/a\n", "the prefix +"),
        ("", "Type=notify\n", "Type=notify"),
        ("", "WorkingDirectory=~\n", "WorkingDirectory=~"),
        ("", "Environment=a\n", "'a' is not NAME=value"),
    ],
)  # fmt: skip
def test_what_differs_in_a_timer_or_a_service_is_noted(timer: str, service: str, told: str) -> None:
    unit = f"[Service]\nUser=backup\nExecStart=/bin/x\n{service}"
    imported = read(f"[Timer]\nOnCalendar=daily\n{timer}", unit)
    assert told in notes(imported, "changed")
    assert tables(imported)
    assert not imported.complete


@pytest.mark.parametrize(
    ("timer", "service", "told"),
    [
        ("OnBootSec=5min\n", "ExecStart=/a\n", "OnBootSec=5min is not imported"),
        ("OnUnitActiveSec=500ms\n", "ExecStart=/a\n", "not a number of whole seconds"),
        ("OnUnitActiveSec=soon\n", "ExecStart=/a\n", "not a time span"),
        ("OnUnitActiveSec=20y\n", "ExecStart=/a\n", "longer than ten years"),
        ("Unit=x\n", "ExecStart=/a\n", "no OnCalendar"),
        ("OnCalendar=daily\n", "", "was not found"),
        ("OnCalendar=daily\n", "Type=oneshot\n", "no ExecStart"),
        ("OnCalendar=daily\n", "ExecStart=-\n", "is empty"),
        ("OnCalendar=daily\n", "ExecStart=/a %h\n", "specifier '%h'"),
        ("OnCalendar=daily\n", "ExecStart=/a\nWorkingDirectory=x\n", "not an absolute path"),
        ("OnCalendar=*-02-30\n", "ExecStart=/a\n", "never occurs"),
    ],
)
def test_what_has_no_equivalent_is_left_out(timer: str, service: str, told: str) -> None:
    imported = read(f"[Timer]\n{timer}", service)
    assert told in notes(imported, "dropped")
    assert tables(imported) == []


def test_a_timer_that_repeats_after_its_unit_fires_on_a_grid() -> None:
    imported = read("[Timer]\nOnBootSec=15min\nOnUnitActiveSec=1d\n")
    assert tables(imported)[0]["schedule"] == "@every 86400s"
    assert "fixed grid" in notes(imported, "info")


run = partial(run_import, "systemd")


def test_the_command_reads_directories_drop_ins_and_templates(tmp_path: Path) -> None:
    local, vendor = tmp_path / "etc", tmp_path / "usr"
    for folder in (local, vendor, local / "backup.timer.d"):
        folder.mkdir()
    (vendor / "backup.service").write_text(SERVICE)
    (local / "backup.timer").write_text(TIMER)
    (local / "backup.timer.d" / "x.conf").write_text("[Timer]\nOnCalendar=\nOnCalendar=Mon 01:00\n")
    (local / "dump@db.timer").write_text("[Timer]\nOnCalendar=daily\n")
    (local / "dump@.service").write_text("[Service]\nExecStart=/bin/dump %i\n")
    (local / "masked.timer").symlink_to("/dev/null")
    ended = run(local, vendor, "--timezone", "UTC", "--as-user", "-o", tmp_path / "c.toml")
    assert ended.exit_code == 0, ended.stderr
    assert "masked.timer: skipped: it is masked" in ended.stderr
    assert ended.stderr.endswith("2 sources: 2 jobs\n")
    backup, dump = toml.load(tmp_path / "c.toml").jobs
    assert (backup.schedule, dump.target["command"][-2:]) == ("0 1 * * 1", ["/bin/dump", "db"])
    assert run(tmp_path / "none").exit_code == 2
    (vendor / "bad.timer").write_bytes(b"\xff")
    assert "is not UTF-8" in run(vendor).stderr


def test_the_timers_of_hosts_have_the_hosts_that_have_them_F107(tmp_path: Path) -> None:
    for host, names in (("web1", ("all", "own")), ("web2", ("all",))):
        (tmp_path / host).mkdir()
        for name in names:
            (tmp_path / host / f"{name}.timer").write_text("[Timer]\nOnCalendar=01:00\n")
            (tmp_path / host / f"{name}.service").write_text("[Service]\nExecStart=/bin/a\n")
    paths = [f"{host}={tmp_path / host}" for host in ("web1", "web2")]
    ended = run(*paths, "--timezone", "UTC", "--as-user", "-o", tmp_path / "c.toml")
    assert ended.exit_code == 0, ended.stderr
    jobs = tomllib.loads((tmp_path / "c.toml").read_text())["jobs"]
    assert {name: (job.get("on"), job.get("every")) for name, job in jobs.items()} == {
        "all": (None, "role=cron"), "own": ("host=web1", None),
    }  # fmt: skip
    assert "web1:own.timer: only on 1 of 2 hosts: web1" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["web1={}", "{}"], "some paths have a host, and others have none"),
        (["web1={}", "--observe"], "import the timers of each host separately"),
    ],
)
def test_hosts_that_cannot_be_read_together_are_refused_F107(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    ended = run(*(one.replace("{}", str(tmp_path)) for one in arguments))
    assert ended.exit_code == 2
    assert told in ended.stderr


@pytest.mark.slow
def test_mutated_units_end_with_a_result_or_a_clear_error(tmp_path: Path) -> None:
    results = 0
    for timer, service in zip(mutated(TIMER, 2000), mutated(SERVICE, 2000, 28), strict=True):
        imported = read(timer, service)
        count = loaded(imported, tmp_path)
        assert count or notes(imported, "dropped")
        results += bool(count)
    assert 100 < results < 1900
