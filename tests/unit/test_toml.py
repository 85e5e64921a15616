"""cronledger.toml: what it declares, and everything that is wrong with it in one report."""

from datetime import timedelta
from pathlib import Path

import pytest

from cronledger.rules.model import Handler, Overlap
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.toml import TomlSource, load

pytestmark = pytest.mark.usefixtures("clean_environment")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cronledger.toml"


def read(file: Path, text: str) -> TomlSource:
    file.write_text(text, encoding="utf-8")
    return load(file)


def refusals(file: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        read(file, text)
    lines = str(refusal.value).splitlines()
    assert all(problem.warning or problem.remedy for problem in refusal.value.problems)
    return [line.removeprefix(f"{file}: ") for line in lines]


def test_each_handler_has_a_target(file: Path) -> None:
    source = read(
        file,
        """
        [jobs.argv]
        schedule = "*/5 * * * *"
        command = ["backup", "--full"]
        env = { LEVEL = "9" }
        cwd = "/srv"
        [jobs.shell]
        command = "a | b"
        [jobs.sql]
        sql = "DELETE FROM t"
        [jobs.http]
        http = { url = "https://x/y", method = "POST", body = { at = 2026-01-01T00:00:00Z } }
        [jobs.python]
        python = "myproject.jobs:refresh"
        payload = { day = 2026-01-01, n = [1, 2.5] }
        payload_schema = { type = "object", properties.day = { examples = [2026-01-01] } }
        [jobs.external]
        external = true
        [jobs.seen]
        observed = true
        [jobs.adoptable]
        command = "a"
        observed = true
        """,
    )
    argv = {"command": ["backup", "--full"], "env": {"LEVEL": "9"}, "cwd": "/srv"}
    http = {"url": "https://x/y", "method": "POST", "body": {"at": "2026-01-01T00:00:00Z"}}
    assert {job.name: (job.handler, job.target) for job in source.jobs} == {
        "argv": (Handler.COMMAND, argv), "shell": (Handler.COMMAND, {"command": "a | b"}),
        "sql": (Handler.SQL, {"sql": "DELETE FROM t"}), "http": (Handler.HTTP, http),
        "python": (Handler.PYTHON, {"python": "myproject.jobs:refresh"}),
        "external": (Handler.EXTERNAL, {}), "seen": (Handler.OBSERVED, {}),
        "adoptable": (Handler.COMMAND, {"command": "a"}),
    }  # fmt: skip
    assert [job.name for job in source.jobs if job.observed] == ["adoptable"]
    assert source.jobs[4].payload == {"day": "2026-01-01", "n": [1, 2.5]}
    properties = {"day": {"examples": ["2026-01-01"]}}
    assert source.jobs[4].payload_schema == {"type": "object", "properties": properties}
    assert source.path == file
    assert (source.settings, source.deploy, source.warnings) == ({}, None, ())
    assert read(file, "").jobs == ()


def test_settings_and_deploy(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[cronledger]\nslots = 3\ndeploy = 12\nqueues = ["a"]\n'
    source = read(file, text)
    assert source.settings == {"slots": 3, "deploy": 12, "queues": ["a"]}
    assert source.deploy == 12
    monkeypatch.setenv("CRONLEDGER_DEPLOY", "13")
    assert read(file, text).deploy == 13


def test_a_job_overrides_defaults_and_those_that_mean_nothing_to_it_are_left_out(
    file: Path,
) -> None:
    source = read(
        file,
        """
        [defaults]
        timezone = "Europe/Berlin"
        dst_gap = "skip"
        catch_up_limit = 5
        retry_backoff = ["1s"]
        overlap = "wait"
        run_timeout = "none"
        calendar = "de"
        on_excluded = "previous"
        [jobs.every]
        external = true
        schedule = "@every 90s"
        overlap = "skip"
        run_timeout = "1m"
        calendar = false
        [jobs.all]
        external = true
        schedule = "0 3 * * *"
        catch_up = "all"
        max_attempts = 3
        [jobs.working]
        external = true
        schedule = "@every 90s"
        """,
    )
    every, everything, working = source.jobs
    assert {"dst_gap", "timezone", "catch_up_limit", "retry_backoff", "on_excluded"}.isdisjoint(
        every.model_fields_set
    )
    calendars = [(job.calendar, job.on_excluded) for job in source.jobs]
    assert calendars == [(None, "skip"), ("de", "previous"), ("de", "skip")]
    assert working.timezone == "Europe/Berlin"  # in which its dates are those of the calendar
    assert (everything.timezone, everything.dst_gap) == ("Europe/Berlin", "skip")
    assert everything.catch_up_limit == 5
    assert everything.retry_backoff == (timedelta(seconds=1),)
    assert (every.overlap, everything.overlap) == (Overlap.SKIP, Overlap.WAIT)
    assert (every.run_timeout, everything.run_timeout) == (timedelta(minutes=1), None)
    assert source.warnings == ()


def test_everything_is_reported_together(file: Path) -> None:
    lines = refusals(
        file,
        """
        calendars."\\u0007" = {}
        [cronledger]
        slots = "many"
        [calendars.de]
        weekend = ["Funday"]
        [default]
        [defaults]
        grce = "1m"
        schedule = "@hourly"
        retry_on = ["timeout"]
        [jobs.a]
        schedule = "61 * * * *"
        timezone = "Europe/Berlim"
        command = []
        graze = "1m"
        grace = "none"
        [jobs.b]
        python = "nocolon"
        name = "c"
        run_timeout = "never"
        [jobs."d\\n"]
        external = true
        [jobs]
        c = 3
        """,
    )
    starts = [
        'cronledger.slots = "many": ', "default: unknown table; did you mean `defaults`?",
        "defaults.grce: unknown policy; did you mean `grace`?",
        "defaults.schedule: cannot be a default; move it",
        "defaults.retry_on: cannot be a default; move it to [jobs.NAME]",
        "jobs.a.graze: unknown name; did you mean `grace`?",
        'jobs.a.grace = "none": is invalid; use',
        'jobs.a.schedule = "61 * * * *": ', 'jobs.a.timezone = "Europe/Berlim": ',
        "jobs.a.command = []: ", 'jobs.b.run_timeout = "never": is invalid; use',
        'jobs.d .name = "d\\n": ', 'jobs.b.python = "nocolon": ',
        "jobs.b.name: unknown name; the table [jobs.NAME] names the job",
        "jobs.c: is not a table; write it as [jobs.c]",
        "calendars.\a", "calendars.de.weekend[0] = ",
    ]  # fmt: skip
    for start in starts:
        assert [line.startswith(start) for line in lines].count(True) == 1, start
    assert len(lines) == len(starts)
    assert [line for line in lines if "or 'none' for no limit" in line] == [
        line for line in lines if "run_timeout" in line
    ]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", ["jobs.a: has nothing to run; use exactly one of command, sql"]),
        ('command = "a"\nsql = "b"', ["jobs.a: has both command and sql; use exactly one of"]),
        ("command = 3", ["jobs.a.command: has an invalid format; use a list"]),
        (
            'command = "a"\nmax_attempts = 2\nretry_on = ["5xx"]',
            [
                'jobs.a.retry_on = "5xx": is not a failure of handler = command; use an exit status'
                ' such as "75", a range such as "64-78", a signal such as "SIGKILL", or one of the'
                " error codes exit_code, handler_error, not_started, signal, timeout",
            ],
        ),
        ("external = false", ["jobs.a.external: has an invalid format"]),
        ('sql = "a"\ncwd = "/"', ["jobs.a.cwd: has no effect with sql; remove it"]),
        ('http = { urls = "x" }', ["jobs.a.http.url: is missing", "jobs.a.http.urls: unknown n"]),
        ('external = true\nmax_attempts = "2"', ["jobs.a.max_attempts = "]),
        ('external = true\nqueue = ""', ['jobs.a.queue = "": has an invalid format; use 1 to 200']),
        ('command = "a"\nevery = "web1"', ["jobs.a.every = \"web1\": 'web1' is not a label"]),
        ("external = true\nday_or = 1", ["jobs.a.day_or = 1: should be a valid boolean"]),
        ("external = true\nstarts_at = 1700000000", ["jobs.a.starts_at = 1700000000: 17000000"]),
        (
            'external = true\nscope_kind = "t"\nscopes = [["a", "b"], ["c"]]',
            ["jobs.a.scopes[0] = ", "jobs.a.scopes[1] = "],
        ),
        ("external = true\nhandler = 1", ["jobs.a.handler: unknown name; use exactly"]),
    ],
)
def test_a_wrong_job_is_refused_with_its_place(file: Path, table: str, expected: list[str]) -> None:
    lines = refusals(file, f"[jobs.a]\n{table}\n")
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)


def test_a_wrong_value_of_the_defaults_is_one_problem(file: Path) -> None:
    jobs = "".join(f'[jobs.{name}]\nschedule = "@daily"\nexternal = true\n' for name in "ab")
    (line,) = refusals(file, f'[defaults]\ntimezone = "Europe/Berlim"\n{jobs}')
    assert line.startswith('defaults.timezone = "Europe/Berlim": unknown time zone')
    (line,) = refusals(file, "[defaults]\ncalendar = false\n[jobs.a]\nexternal = true\n")
    assert line.startswith("defaults.calendar = false: should be a valid string; see `calendar` in")


def test_warnings_do_not_refuse(file: Path) -> None:
    source = read(file, '[jobs.a]\nexternal = true\nschedule = "@every 7d"\n')
    (warning,) = source.warnings
    assert (warning.warning, warning.job, warning.field) == (True, "a", "schedule")


def test_an_unreadable_file_is_reported(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load(file)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        load(file.parent)
    file.write_bytes(b"# \xff\n")
    with pytest.raises(ConfigurationError, match="byte 2 is not UTF-8"):
        load(file)
    (line,) = refusals(file, "[jobs.a]\nexternal = yes\n")
    assert line.startswith("is not TOML: ")
    assert "line 2" in line
    file.write_bytes(b"\xef\xbb\xbf[jobs.a]\r\nexternal = true\r\n")  # a byte order mark is fine
    assert [job.name for job in load(file).jobs] == ["a"]
