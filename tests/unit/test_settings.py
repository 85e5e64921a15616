"""Settings: variables over the file, secrets never shown, every bad value reported."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cronledger.rules.masks import masked
from cronledger.rules.problems import ConfigurationError
from cronledger.settings import VARIABLES, Settings

pytestmark = pytest.mark.usefixtures("clean_environment")

SECRET = "hunter2"


def problems(file: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as refusal:
        Settings.load(file, where="c.toml")
    assert SECRET not in str(refusal.value) + repr(refusal.value)
    assert refusal.value.__suppress_context__
    return str(refusal.value).splitlines()


@pytest.mark.parametrize(
    ("given", "listening", "seconds"),
    [({}, True, 15), ({}, False, 5), ({"poll_interval": "4s"}, True, 4),
     ({"poll_interval": "4s"}, False, 4)],
)  # fmt: skip
def test_a_poll_interval_that_is_set_applies_with_and_without_listen(
    given: dict[str, str], listening: bool, seconds: float
) -> None:
    assert Settings.load(given).poll_seconds(listening=listening) == seconds


def test_variables_stand_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    file = {"slots": 3, "schema": "from_file", "queues": ["a"], "drain_timeout": "9s", "deploy": 4}
    monkeypatch.setenv("CRONLEDGER_SLOTS", "5")
    monkeypatch.setenv("CRONLEDGER_QUEUES", "x, y")
    monkeypatch.setenv("CRONLEDGER_POLL_INTERVAL", "1m30s")
    monkeypatch.setenv("CRONLEDGER_LOG_LEVEL", "INFO")
    monkeypatch.setenv("CRONLEDGER_EMBEDDED_DIR", "/var/lib/x")
    monkeypatch.setenv("CRONLEDGER_DEPLOY", "")
    monkeypatch.setenv("DRAIN_TIMEOUT", "1s")  # of another program
    settings = Settings.load(file)
    assert settings.warnings() == ()
    assert (settings.slots, settings.queues) == (5, ("x", "y"))
    assert (settings.schema_name, settings.drain_timeout) == ("from_file", timedelta(seconds=9))
    assert (settings.poll_interval, settings.log_level) == (timedelta(seconds=90), "info")
    assert (settings.embedded_dir, settings.deploy) == (Path("/var/lib/x"), 4)


def test_bad_values_are_reported_together_with_where_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRONLEDGER_SLOTS", "many")
    monkeypatch.setenv("CRONLEDGER_SCHEMA", "No Schema")
    file: dict[str, Any] = {"partition_interval": "1s", "poll_interval": "5", "queues": []}
    file |= {"log_format": "xml", "slotz": 1}
    said = {line.partition(":")[2].split()[0]: line for line in problems(file)}
    variables = {"CRONLEDGER_SLOTS", "CRONLEDGER_SCHEMA"}
    keys = ("partition_interval", "poll_interval", "log_format", "slotz:", "queues")
    assert set(said) == variables | {f"cronledger.{key}" for key in keys}
    assert said["CRONLEDGER_SLOTS"].startswith('environment: CRONLEDGER_SLOTS = "many": should be')
    assert said["cronledger.slotz:"].endswith("unknown name; did you mean `slots`?")
    assert said["cronledger.partition_interval"].endswith("use 1h to 366d")
    assert said["cronledger.poll_interval"].startswith('c.toml: cronledger.poll_interval = "5"')
    assert "use 'auto', 'console' or 'json'" in said["cronledger.log_format"]


def test_the_former_setting_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    remedy = "remove it: the ledger stores it; run `cronledger retention set DURATION`"
    assert problems({"retention": "9d"}) == [
        f"c.toml: cronledger.retention: unknown name; {remedy}"
    ]
    monkeypatch.setenv("CRONLEDGER_RETENTION", "9d")
    (warning,) = Settings.load().warnings()
    assert (warning.field, warning.remedy) == ("CRONLEDGER_RETENTION", remedy)


def test_unknown_variables_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONLEDGER_SLOT", "3")
    monkeypatch.setenv("CRONLEDGER_TEST_DATABASE_URL", "x")
    (warning,) = Settings.load().warnings()
    assert warning.warning
    assert str(warning) == (
        "environment: CRONLEDGER_SLOT: unknown variable; did you mean `CRONLEDGER_SLOTS`?"
    )


@pytest.mark.parametrize(
    "file",
    [
        {"listen_url": f"x:{SECRET}"},
        {"databse_url": f"postgresql://u:{SECRET}@h/d"},
        {"database_url": [SECRET]},
    ],
    ids=str,
)
def test_secrets_are_not_in_errors(file: dict[str, Any]) -> None:
    assert len(problems(file)) == 1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("schema_name", "a", "cronledger.schema_name: unknown name; did you mean `schema`?"),
        ("deploy", 2**63, "cronledger.deploy = 9223372036854775808"),
        ("database_url", f"postgresql+psycopg://me:{SECRET}@host/shop",
         "begin it with postgresql://, without the driver"),
        ("listen_url", "embedded", "is not a PostgreSQL connection string"),
        ("slots", True, "cronledger.slots = true: is not a number; use digits"),
        ("deploy", True, "cronledger.deploy = true: is not a number; use digits"),
    ],
)  # fmt: skip
def test_a_wrong_value_has_its_remedy(key: str, value: Any, said: str) -> None:
    (line,) = problems({key: value})
    assert line.startswith("c.toml: ")
    assert said in line


@pytest.mark.parametrize(
    "url",
    [
        f"postgres://u:{SECRET}@h:1,h2:2/d?sslmode=require",
        f"postgresql:///d?password={SECRET}&user=u&sslpassword={SECRET}",
    ],
)
def test_secrets_are_not_shown(url: str) -> None:
    settings = Settings.load({"database_url": url, "listen_url": url})
    assert settings.require_database() == url
    described = settings.describe()
    assert SECRET not in repr(settings) + str(settings) + str(described)
    assert "***" in described["database_url"]
    assert "***" in described["listen_url"]


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("embedded", "embedded"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgresql://u:p@h:1,h2:2/d?a=b", "postgresql://u:***@h:1,h2:2/d?a=b"),
        ("postgresql://u:p@:/?w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://h/d?password=p%20q&a=b", "postgresql://h/d?password=***&a=b"),
        ("host=h password = 'p \\' q' dbname=d", "host=h password = *** dbname=d"),
        ("password=p\\ q host=h", "password=*** host=h"),
        ("PASSWORD='p q", "PASSWORD=***"),
    ],
)
def test_passwords_in_a_dsn_are_masked(dsn: str, shown: str) -> None:
    assert masked(dsn) == shown


def test_describe_has_every_setting_as_it_is_written() -> None:
    described = Settings.load({"queues": ["a", "b"], "partition_interval": "36h"}).describe()
    assert {f"CRONLEDGER_{name.upper()}" for name in described} == VARIABLES
    assert described["queues"] == '["a", "b"]'
    assert described["partition_interval"] == "1d12h"


@pytest.mark.parametrize(
    ("name", "said"),
    [(name, " = ") for name in ("1a", "A", "a" * 42, 'a"b')]
    + [(name, f' = "{name}": is a ') for name in ("select", "pg_cron")],
)
def test_a_schema_name_that_is_no_identifier_or_reserved_by_sql_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv("CRONLEDGER_SCHEMA", name)
    (line,) = problems({})
    assert line.startswith(f"environment: CRONLEDGER_SCHEMA{said}")
    assert ("use another name, such as cronledger" in line) == ("is a " in said)
