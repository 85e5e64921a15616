"""The JSON Schema of cronledger.toml: it accepts what the documentation shows, and no mistakes."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator
from jsonschema.exceptions import ValidationError
from pydantic_core import to_jsonable_python

from cronledger.cli import main
from cronledger.rules import durations
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.crontab import Options, read_crontab
from cronledger.sources.crontab_toml import convert
from cronledger.sources.imported import render
from cronledger.sources.toml import load
from cronledger.sources.toml_schema import DIRECTIVE, FILE, document
from docs.tools import schema
from tests.docs.support.pages import ROOT, blocks
from tests.docs.support.references import pages

pytestmark = pytest.mark.usefixtures("clean_environment")

HEREDOC = re.compile(r"cat > \S+\.toml <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)
VALIDATOR = Draft7Validator(document())
CHANNEL = "[channels.ops]\n"
REFUSED_CHANNELS = (
    'kind = "webhook"\nurl = "https://example.org/"\nsecret = "hunter2"',
    'kind = "slack"', 'kind = "sms"\nurl = "https://example.org/"',
    'kind = "email"\nto = []\nsender = "b@example.org"',
    'kind = "command"\ncommand = "page"\non_ledger = ["failed"]',
    'kind = "apprise"\nurls = { env = "A" }\nurl = "json://localhost"',
)  # fmt: skip
LEDGERS = "[ledgers]\n"  # of a file of its own
CALENDAR = "[calendars.de]\n"
JOB = '[jobs.a]\nschedule = "@daily"\ncommand = ["true"]\n'


def errors(text: str) -> list[ValidationError]:
    return list(VALIDATOR.iter_errors(to_jsonable_python(tomllib.loads(text))))


def shown() -> Iterator[tuple[str, str]]:
    """Yield each file of the documentation and of the examples, with its place."""
    for page in pages():
        for number, block in enumerate(blocks(page)):
            place = f"{page.relative_to(ROOT)}:{number}"
            if block.language == "toml" and not block.text.startswith(LEDGERS):
                yield place, block.text
            elif block.language == "console":
                yield from ((place, text) for text in HEREDOC.findall(block.text))
    for path in sorted((ROOT / "examples").rglob("*.toml")):
        if path.name != "pyproject.toml":
            yield path.name, path.read_text("utf-8")


def test_it_accepts_every_file_of_the_documentation() -> None:
    Draft7Validator.check_schema(document())
    files = dict(shown())
    assert {"README.md", "docs/tutorial.md", "docs/python.md", "sample.toml"} <= {
        place.partition(":")[0] for place in files
    }
    found = {place: [error.message for error in errors(text)] for place, text in files.items()}
    assert {place: messages for place, messages in found.items() if messages} == {}


@pytest.mark.parametrize(
    "line",
    [
        'run_timeout = "none"', 'jitter = " 1h30m "', "max_running = 1",
        "starts_at = 2026-01-31T08:00:00Z", 'starts_at = "2026-01-31T08:00:00+01:00"',
        "payload = { a = [1, { b = 2.5 }] }", 'labels = { team = "data", "a.b/c" = "x y" }',
        'retry_on = [75, "timeout"]\nmax_attempts = 2', 'notify = { channel = "ops", after = 3 }',
        'notify = ["ops", { channel = "data", after = 3, remind = "4h" }]', "notify = []",
        '[jobs.b]\nhttp = { url = "http://x/y", headers = { A = { env = "B" } }, body = [1] }',
        '[jobs.b]\ncommand = "a | b"', '[jobs.b]\nexternal = true\nschedule = "@EVERY 1h"',
        '[jobs.b]\nexternal = true\nschedule = " 0 30 9 * * 1-5 "',
        '[jobs.b]\nexternal = true\nschedule = "H H(2-4) * * *"',
        CHANNEL + 'kind = "webhook"\nurl = { env = "URL" }\nsecret = { env = "KEY" }',
        CHANNEL + 'kind = "command"\ncommand = "page"\non_ledger = ["violation"]',
        CHANNEL + 'kind = "apprise"\nurls = [{ env = "A" }, "json://localhost"]',
        CALENDAR + 'holidays = ["DE-BE", "US-NY"]\nics = "bank.ics"\nexclude = [2027-12-24]',
        CALENDAR + 'ics = ["a.ics"]\n[calendars.de.exclude]\n2027-12-24 = "Christmas Eve"',
    ],
)  # fmt: skip
def test_it_accepts_what_the_loader_accepts(line: str, tmp_path: Path) -> None:
    file = tmp_path / "cronledger.toml"
    file.write_text(JOB + line, "utf-8")
    load(file)
    assert errors(JOB + line) == []


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ('[job.a]\ncommand = ["x"]', "$"),
        ("[cronledger]\nslot = 3", "$.cronledger"),
        ("[cronledger]\nslots = 0", "$.cronledger.slots"),
        ('[cronledger]\ndrain_timeout = "90"', "$.cronledger.drain_timeout"),
        ('[defaults]\nschedule = "@daily"', "$.defaults"),
        ("[jobs.a]\n", "$.jobs.a"),
        ('[jobs.a]\ncommand = ["x"]\nsql = "SELECT 1"', "$.jobs.a"),
        ('[jobs.a]\nsql = "SELECT 1"\nenv = { A = "b" }', "$.jobs.a"),
        ('[jobs.a]\ncommand = [""]', "$.jobs.a.command"),
        ("[jobs.a]\nexternal = false", "$.jobs.a.external"),
        ('[jobs.a]\npython = "jobs.f"', "$.jobs.a.python"),
        ('[jobs.a]\nhttp = { url = "ftp://x" }', "$.jobs.a.http.url"),
        (JOB.replace("@daily", "* * * *"), "$.jobs.a.schedule"),
        (JOB + 'overlap = "maybe"', "$.jobs.a.overlap"),
        (JOB + "grace = 60", "$.jobs.a.grace"),
        (JOB + 'run_timeout = "never"', "$.jobs.a.run_timeout"),
        (JOB + "max_attempts = true", "$.jobs.a.max_attempts"),
        (JOB + "retry_jitter = 2", "$.jobs.a.retry_jitter"),
        (JOB + "max_attempts = 2\nretry_on = [0]", "$.jobs.a.retry_on[0]"),
        (JOB + 'cwd = "srv"', "$.jobs.a.cwd"),
        (JOB + 'labels = { "a b" = "x" }', "$.jobs.a.labels"),
        (JOB + "env = { A = 1 }", "$.jobs.a.env.A"),
        ('[jobs."a\\nb"]\ncommand = ["x"]', "$.jobs"),
        (CALENDAR + 'weekend = ["Sat"]', "$.calendars.de.weekend[0]"),
        (CALENDAR + 'exclude = { 2027-12-24 = "" }', "$.calendars.de.exclude"),
        *((CHANNEL + channel, "$.channels.ops") for channel in REFUSED_CHANNELS),
    ],
)
def test_it_refuses_what_the_loader_refuses(text: str, at: str, tmp_path: Path) -> None:
    assert {error.json_path for error in errors(text)} == {at}
    file = tmp_path / "cronledger.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError):
        load(file)


@pytest.mark.parametrize(
    "text",
    ["0", "5", "", "1h30m", "1m1h", "1s1s", "1w2d3h4m5s6ms7us", "-1s", "1.5s", "P", "PT", "P1M",
     "PT1.5S", "P1DT", "PT1,5S", "1 h", " 2d ", "none"],
)  # fmt: skip
def test_the_pattern_of_durations_is_that_of_their_parser(text: str) -> None:
    try:
        parsed: timedelta | None = durations.parse(text)
    except durations.DurationError:
        parsed = None
    assert (re.search(durations.PATTERN, text) is None) == (parsed is None)


def test_every_property_has_a_description_and_no_type_of_python() -> None:
    def check(schema: Mapping[str, Any]) -> None:
        for name, one in schema.get("properties", {}).items():
            assert one.get("description"), name
            assert "$defs" not in one and "null" not in json.dumps(one), name
            assert ".md" not in one["description"], "an editor cannot follow a relative link"
            check(one)

    whole = document()
    check(whole)
    check(whole["definitions"]["job"])
    check(whole["properties"]["cronledger"])
    assert whole["definitions"]["job"]["properties"]["grace"]["default"] == "1m"


def test_the_command_prints_what_the_documentation_has() -> None:
    said = CliRunner().invoke(main, ["schema"])
    assert said.exit_code == 0
    committed = (ROOT / "docs" / FILE).read_text("utf-8")
    assert json.loads(said.stdout) == json.loads(committed), "run `make docs`"
    assert json.loads(schema.document()) == json.loads(committed)


def test_files_that_are_written_name_the_schema() -> None:
    options = Options("UTC", "me", as_user=False, faithful=False)
    text = "0 5 * * 1 tar -zcf /var/backups/home.tgz /home/\n"
    written = render(
        convert([read_crontab(text, file="c", format="user", options=options)], options)
    )
    assert written.splitlines()[0] == DIRECTIVE
    assert errors(written) == []
