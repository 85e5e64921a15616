"""`cronledger check`: what is wrong with a source, and when its jobs fire, without a database."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.cli.support.results import done, refused

ROOT = Path(__file__).parents[2]
SPRING = ("--from", "2027-03-27T12:00:00Z")
GOOD = """
[defaults]
timezone = "Europe/Berlin"
[jobs.backup]
schedule = "30 2 * * *"
command = ["true"]
[jobs.often]
schedule = "*/5 * * * *"
command = ["true"]
[jobs.manual]
command = ["true"]
"""
APP = """
from cronledger import App
print("importing")
app = App("shop")

@app.job("30 2 * * *", timezone="Europe/Berlin")
def backup() -> None: ...

@app.job("@hourly", queue="mial")
def send() -> None: ...
"""


@pytest.fixture
def write(surroundings: Path) -> Any:
    def write(text: str, name: str = "cronledger.toml") -> str:
        (surroundings / name).write_text(text, "utf-8")
        return name

    return write


def report(cli: Cli, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Return the report. What a module prints is no JSON, so it is not in it."""
    said = cli("check", *arguments, "--format", "json")
    assert said.exit_code == code, said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_it_shows_the_next_firings_and_the_clock_changes(bare: Cli, write: Any) -> None:
    write(GOOD)
    said = done(bare, "check", *SPRING, "--count", "2")
    assert [cells(line) for line in said.stdout.splitlines()] == [
        ["JOB", "LOCAL", "NOTE"],
        ["backup", "Sun 2027-03-28 03:00:00+02:00", "shifted: a clock change skips its local time"],
        ["backup", "Mon 2027-03-29 02:30:00+02:00"],
        ["backup", "Sun 2027-10-31 02:30:00+02:00",
         "clock change: 02:30 occurs twice; it fires the first time"],
        ["backup", "Sun 2028-03-26 03:00:00+02:00",
         "clock change: 02:30 is skipped; it fires right after the gap"],
        ["often", "Sat 2027-03-27 13:05:00+01:00"],
        ["often", "Sat 2027-03-27 13:10:00+01:00"],
        ["manual", "no schedule: it runs when it is triggered or enqueued"],
    ]  # fmt: skip
    assert said.stderr == "cronledger.toml: 3 jobs, 0 errors, 0 warnings\n"


def test_no_variable_that_names_a_database_is_read(
    bare: Cli, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(GOOD + '[jobs.mail]\nqueue = "mail"\ncommand = ["true"]\n')
    monkeypatch.setenv("CRONLEDGER_DATABASE_URL", "neither a DSN \udcff")
    monkeypatch.setenv("CRONLEDGER_LISTEN_URL", "nor this")
    monkeypatch.setenv("CRONLEDGER_QUEUES", "default,mail")
    assert bare("check", "--strict").exit_code == 0
    monkeypatch.setenv("CRONLEDGER_SLOTS", "none")
    refused(bare("check"), "CRONLEDGER_SLOTS")


def test_every_error_has_its_line(bare: Cli, write: Any) -> None:
    absent = '[jobs.b]\npython = "absent:f"\n'
    for text, words in (
        (
            '[jobs.a]\nschedule = "61 * * * *"\ncommand = ["x"]\n',
            '2: jobs.a.schedule = "61 * * * *": ',
        ),
        (absent, "2: jobs.b.python: "),
        ("[jobs.a\n", "1: is not TOML: "),
        ('[job.a.http]\nurl = "http://x"\n', "1: job: unknown table"),
    ):
        write(text)
        said = bare("check")
        refused(said, f"Error: cronledger.toml:{words}")
        assert said.stdout == ""
    write(absent)
    assert bare("check", "--no-import").exit_code == 0
    refused(bare("check", "absent.toml"), "absent.toml: cannot be read")


def test_unknown_queues(bare: Cli, write: Any) -> None:
    jobs = '[jobs.a]\nqueue = "mial"\ncommand = ["true"]\n'
    write(jobs)
    said = done(bare, "check")
    assert 'Warning: cronledger.toml:2: jobs.a.queue = "mial": is not served by a' in said.stderr
    assert bare("check", "--strict").exit_code == 1
    assert bare("check", "--strict", "--queue", "mail", "--queue", "mial").exit_code == 0
    write('[cronledger]\nqueues = ["default", "mail"]\n' + jobs)
    for options in ([], ["--queue", "mail"]):
        said = bare("check", *options)
        assert said.exit_code == 1
        assert "is not one of the queues that replicas serve" in said.stderr
        assert "did you mean `mail`?" in said.stderr


def test_collisions(bare: Cli, write: Any) -> None:
    job = '[jobs.{}]\nschedule = "0 0 * * *"\ncommand = ["true"]\n'
    write("".join(job.format(name) for name in "abcdefghijk"))
    said = done(bare, "check", *SPRING)
    assert (
        'Warning: cronledger.toml: queue "default": 11 executions are due at 2027-03-28T00:00:00Z, '
        "which is more than 10 (jobs: a, b, c, d, e and 6 more); spread them"
    ) in said.stderr
    assert bare("check", *SPRING, "--strict").exit_code == 1
    assert bare("check", *SPRING, "--strict", "--at-once", "11").exit_code == 0


def test_a_source_without_a_firing_is_no_error(bare: Cli, write: Any) -> None:
    write("")
    said = bare("check")
    assert (said.exit_code, said.stdout) == (0, "")
    assert said.stderr == "there are no jobs\ncronledger.toml: 0 jobs, 0 errors, 0 warnings\n"
    write('[jobs.a]\nschedule = "@daily"\nends_at = 2020-01-01T00:00:00Z\ncommand = ["true"]\n')
    said = done(bare, "check")
    assert "Warning: cronledger.toml:3: jobs.a.ends_at" in said.stderr
    assert "the job no longer fires; remove the job, or correct `ends_at`" in said.stderr
    assert cells(said.stdout.splitlines()[1]) == ["a", "no firing to show"]
    write('[jobs.a]\nschedule = "@reboot"\nevery = "role=web"\ncommand = ["true"]\n')
    assert cells(bare("check").stdout.splitlines()[1]) == ["a", "at the next boot of each host"]


def test_values_that_are_probably_secrets_are_warned_about_and_not_shown(
    bare: Cli, write: Any
) -> None:
    write(
        """
        [jobs.backup]
        command = "pg_dump postgresql://shop:hunter2@db/shop | gzip"
        payload = { Token = "hunter2", limit = 3 }
        [jobs.backup.env]
        DB_PASSWORD = "hunter2"
        OTHER_PASSWORD = { env = "SHOP_PASSWORD" }
        [jobs.call]
        http = { url = "https://u:hunter2@example.org/x", headers = { X-Api-Key = "hunter2" } }
        [channels.pager]
        kind = "command"
        command = ["page"]
        [channels.pager.env]
        PAGER_TOKEN = "hunter2"
        """
    )
    found = report(bare)["findings"]
    assert [(one["job"], one["field"], one["line"]) for one in found] == [
        ("backup", "command", 3), ("backup", "env.DB_PASSWORD", 5), ("backup", "payload.Token", 4),
        ("call", "http.url", 9), ("call", "http.headers.X-Api-Key", 9),
        (None, "channels.pager.env.PAGER_TOKEN", 14),
    ]  # fmt: skip
    assert {one["level"] for one in found} == {"warning"}
    assert "hunter2" not in str(found) + bare("check").output
    assert 'write {env = "NAME"}' in found[1]["message"]


def test_a_long_job_with_a_short_lease_is_warned_about(bare: Cli, write: Any) -> None:
    for policies, warns in (
        ('run_timeout = "none"', True),
        ('schedule = "@daily"\nrun_timeout = "2h"\nstale_timeout = "5m"', True),
        ('schedule = "@daily"\nrun_timeout = "2h"\nstale_timeout = "10m"', False),
        ('schedule = "@daily"\nrun_timeout = "10m"', False),
        ('schedule = "*/5 * * * *"\nrun_timeout = "none"', False),
    ):
        write(f'[jobs.dump]\ncommand = ["true"]\n{policies}\n')
        said = done(bare, "check", *SPRING)
        assert ("an outage of the database that lasts longer" in said.stderr) is warns, policies
        assert ("use for example stale_timeout = '10m'" in said.stderr) is warns, policies


def test_an_app_has_the_lines_of_its_functions(bare: Cli, write: Any) -> None:
    write(APP, "shop_of_this_test.py")
    served = ("--queue", "default", "--queue", "mail")
    found = report(bare, "shop_of_this_test:app", *served, code=1)
    assert [job["job"] for job in found["jobs"]] == ["backup", "send"]
    (finding,) = found["findings"]
    assert (finding["file"], finding["line"], finding["level"]) == (
        "shop_of_this_test.py", 9, "error",
    )  # fmt: skip
    assert finding["message"].startswith("shop_of_this_test.py:9: jobs.send.queue")
    write(APP.replace("@hourly", "61 * * * *"), "bad_of_this_test.py")
    said = bare("check", "bad_of_this_test:app", "--format", "github")
    assert said.exit_code == 2
    assert said.stdout.startswith("::error file=bad_of_this_test.py,line=9::bad_of_this_test.py:9")


def test_a_module_that_cannot_be_imported_is_named_with_its_line_and_imported_once(
    bare: Cli, write: Any
) -> None:
    for line, text in {
        4: "from cronledger import App\napp = App()\n\n@app.job(grace=-1)\ndef f(): ...\n",
        3: "print('importing')\nwith open('imports', 'a') as file: file.write('x')\n"
        "raise SystemExit(3)\n",
        1: "def f(:\n",
    }.items():
        name = f"broken_of_this_test_{line}"
        write(text, f"{name}.py")
        (finding,) = report(bare, f"{name}:app", code=2)["findings"]
        assert (finding["file"], finding["line"]) == (f"{name}.py", line)
    assert Path("imports").read_text() == "x"


def test_workflow_commands(bare: Cli, surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = surroundings / "a,b"
    below.mkdir()
    (below / "100%.toml").write_text('[jobs.a]\nqueue = "%"\ncommand = ["true"]\n')
    monkeypatch.chdir(below)
    monkeypatch.setenv("GITHUB_WORKSPACE", str(surroundings))
    said = bare("check", "100%.toml", "--format", "github")
    assert said.stdout.splitlines() == [
        '::warning file=a%2Cb/100%25.toml,line=2::100%25.toml:2: jobs.a.queue = "%25": is not '
        'served by a replica with these settings, which serves "default"; add it to `queues`, or '
        "name all queues of your replicas with --queue"
    ]


def test_several_sources_are_checked(bare: Cli, write: Any) -> None:
    write(GOOD, "a.toml"), write("[jobs.x]\n", "b.toml")
    said = bare("check", "a.toml", "b.toml")
    refused(said, "Error: b.toml:1: jobs.x: has nothing to run")
    assert "backup" in said.stdout
    assert "a.toml, b.toml: 3 jobs, 1 error, 0 warnings" in said.stderr


def test_a_time_without_offset_is_read_in_the_zone_of_the_jobs(bare: Cli, write: Any) -> None:
    write(GOOD)
    local = ("--from", "2027-03-28T01:59")
    assert report(bare, *local)["from"] == "2027-03-28T00:59:00Z"
    write(GOOD + '[jobs.utc]\nschedule = "@daily"\ntimezone = "UTC"\ncommand = ["true"]\n')
    refused(bare("check", *local), "several time zones (Europe/Berlin, UTC)")


def test_the_hook_of_pre_commit_checks_files(bare: Cli, write: Any) -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    assert re.search(r"^- id: cronledger-check$", hook, re.MULTILINE)
    entry = re.search(r"^  entry: (.+)$", hook, re.MULTILINE)
    files = re.search(r"^  files: (.+)$", hook, re.MULTILINE)
    assert entry is not None and files is not None
    program, *arguments = shlex.split(entry[1])
    assert program == "cronledger"
    assert re.search(files[1], "deploy/cronledger.toml") and re.search(files[1], "cronledger.toml")
    assert not re.search(files[1], "pyproject.toml")
    write('[jobs.b]\nschedule = "@daily"\npython = "absent:f"\n')
    assert bare(*arguments, "cronledger.toml").exit_code == 0
    write('[jobs.b]\nschedule = "@dayly"\npython = "absent:f"\n')
    assert bare(*arguments, "cronledger.toml").exit_code == 2


def test_a_typed_dict_works_or_the_error_names_the_import_without_a_traceback(
    bare: Cli, write: Any
) -> None:
    write(
        "from typing import TypedDict\nfrom cronledger import App\napp = App()\n"
        "class Order(TypedDict):\n    number: int\n"
        "@app.job()\ndef ship(payload: list[Order]) -> None: ...\n",
        "typed_of_this_test.py",
    )
    said = bare("check", "typed_of_this_test:app")
    assert "Traceback" not in said.stderr
    if sys.version_info >= (3, 12):
        assert said.exit_code == 0
        return
    refused(said, "from typing_extensions import TypedDict", "jobs.ship.payload")


def test_a_file_whose_every_firing_would_fail_is_refused(bare: Cli, write: Any) -> None:
    write("def ship(payload: int) -> None: ...\n", "needy_of_this_test.py")
    job = '[jobs.{}]\nschedule = "@daily"\npython = "needy_of_this_test:ship"\n'
    write(
        job.format("none")
        + job.format("wrong") + 'payload = "SECRET"\n'
        + job.format("right") + "payload = 4\n"
        + '[jobs.manual]\npython = "needy_of_this_test:ship"\n'
    )  # fmt: skip
    found = report(bare, code=2)["findings"]
    assert [(one["job"], one["field"], one["line"], one["level"]) for one in found] == [
        ("none", "payload", 1, "error"), ("wrong", "payload", 7, "error"),
    ]  # fmt: skip
    assert "SECRET" not in str(found)
    for command in (["jobs", "apply"], ["run"]):
        refused(bare(*command, "cronledger.toml"), "jobs.none.payload: is missing, but the handler")
    # The functions are unknown, so nothing is known about their payloads.
    assert bare("check", "--no-import").exit_code == 0


def test_what_jobs_require_is_checked_over_all_sources(bare: Cli, write: Any) -> None:
    write('[jobs.load]\nafter = "extract"\nexternal = true\n', "a.toml")
    write('[jobs.extract]\nschedule = "H 3 * * *"\nexternal = true\n', "b.toml")
    load, extract = report(bare, "a.toml", "b.toml", *SPRING)["jobs"]
    assert [one["plan_time"] for one in load["firings"]] == [
        one["plan_time"] for one in extract["firings"]
    ]
    (finding,) = report(bare, "a.toml", *SPRING)["findings"]
    assert (finding["level"], finding["field"]) == ("warning", "after")
    write('[jobs.extract]\nafter = "load"\nexternal = true\n', "b.toml")
    looped = bare("check", "a.toml", "b.toml", *SPRING)
    assert looped.exit_code == 1
    assert "which requires" in looped.stderr
