"""`import crontab` with the crontabs of many hosts: equal entries are one job, others differ."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from click.testing import Result

from cronledger.sources.toml import problems_of_table
from tests.cli.support.results import refused
from tests.unit.support.imports import run_import

ROTATE = "15 3 * * * /usr/local/bin/rotate\n"
BACKUP = " * * * /usr/local/bin/backup --full\n"


run = partial(run_import, "crontab")


def write(place: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return place


def jobs(said: Result) -> dict[str, dict[str, Any]]:
    """Return the tables of the jobs, which the reader of files accepts."""
    found: dict[str, dict[str, Any]] = tomlkit.parse(said.stdout).unwrap().get("jobs", {})
    assert not [problem for job in found.items() for problem in problems_of_table(*job)]
    return found


def hosts_of(said: Result) -> dict[str, dict[str, Any]]:
    keys = ("on", "every", "scope_kind", "scopes")
    return {name: {k: x[k] for k in keys if k in x} for name, x in jobs(said).items()}


def test_equal_entries_of_hosts_become_one_job_and_differences_are_listed_F110(
    tmp_path: Path,
) -> None:
    tick = "*/5 * * * * root /srv/app/tick\n"
    write(tmp_path, {
        "web1/crontab.root": f"# a comment of web1\n{ROTATE}0 4{BACKUP}@reboot /bin/warm\n",
        "web2/crontab.root": f"{ROTATE}0 4{BACKUP}@reboot /bin/warm\n",
        "web3/crontabs/root": f"{ROTATE}30 4{BACKUP}@reboot /bin/warm\n",
        "web1/cron.d/app": tick, "web2/cron.d/app": tick, "web3/crontab": tick,
        "web3/notes.txt": "",
    })  # fmt: skip
    said = run("--hosts", tmp_path, "--every", "role=web", "--timezone", "UTC")
    assert said.exit_code == 0
    assert {k: v for k, v in jobs(said)["warm"].items() if k not in {"command", "description"}} == {
        "schedule": "@reboot", "timezone": "UTC", "every": "role=web", "catch_up": "skip",
        "grace": "10m", "overlap": "allow", "run_timeout": "none", "stale_timeout": "10m",
    }  # fmt: skip
    assert hosts_of(said) == {
        "warm": {"every": "role=web"},
        "app-tick": {"every": "role=web"},
        "rotate": {"every": "role=web"},
        "backup-full": {"scope_kind": "host", "scopes": ["web1", "web2"]},
        "backup-full-web3": {"on": "host=web3"},
    }
    for words in (
        "web3/notes.txt: skipped",
        "all 3 hosts: 3 jobs",
        "web1:crontab.root:3: only on 2 of 3 hosts: web1, web2",
        "the job backup-full-web3 on web3 has the same command and another schedule '30 4 * * *'",
        "the job backup-full on web1, web2 has the same command and another schedule '0 4 * * *'",
    ):
        assert words in said.stderr


def test_an_entry_of_one_host_at_its_boot_has_every_F100(tmp_path: Path) -> None:
    write(tmp_path, {"web1/crontab.root": "@reboot /bin/warm\n", "web2/crontab.root": "\n"})
    assert hosts_of(run("--hosts", tmp_path)) == {"warm": {"every": "host=web1"}}
    said = run("--hosts", tmp_path, "--observe")
    assert said.exit_code == 1
    assert "names no time at which a report is expected" in said.stderr


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (ROTATE, "PATH=/opt/bin\n" + ROTATE, "another env"),
        (ROTATE, "CRON_TZ=Asia/Tokyo\n" + ROTATE, "another timezone 'Asia/Tokyo'"),
        (ROTATE, ROTATE * 2, "the same settings"),
    ],
)
def test_an_entry_that_differs_in_anything_is_another_job_F110(
    tmp_path: Path, first: str, second: str, words: str
) -> None:
    write(tmp_path, {"a": first, "b": second})
    said = run(f"web1={tmp_path / 'a'}", f"web2={tmp_path / 'b'}", "--timezone", "UTC")
    assert words in said.stderr
    assert len(jobs(said)) == 2


def test_users_and_zones_of_hosts_keep_entries_apart_F110(tmp_path: Path) -> None:
    write(tmp_path, {
        "web1/crontab.app": ROTATE, "web2/crontab.www-data": ROTATE, "web3/crontab.app": ROTATE,
        "web3/timezone": "Asia/Tokyo\n",
    })  # fmt: skip
    said = run("--hosts", tmp_path)
    assert [(*x.values(),) for x in hosts_of(said).values()] == [
        ("host=web1",), ("host=web2",), ("host=web3",),
    ]  # fmt: skip
    assert [x["timezone"] for x in jobs(said).values()][2] == "Asia/Tokyo"
    said = run("--hosts", tmp_path, "--as-user")
    assert jobs(said)["rotate"]["command"][:3] == ["runuser", "-u", "app"]


def test_arguments_that_name_no_hosts_are_refused_F110(tmp_path: Path) -> None:
    file = write(tmp_path, {"files/crontab": ROTATE}) / "files" / "crontab"
    refused(run(), "--hosts DIR")
    refused(run(file, f"web1={file}"), "write HOST=FILE for each of them")
    refused(run(f"web1={file}", "--every", "web"), "use one such as role=web")
    refused(run("--hosts", tmp_path / "files"), "contains no directory of a host")
    for place, text, words in (
        ("-web1/crontab", ROTATE, "does not have the name of a host"),
        ("web1/other", "", "contains no crontab"),
        ("web1/crontab/x", "", "contains no crontab"),
    ):
        name = place.replace("/", "_")
        refused(run("--hosts", write(tmp_path / name, {place: text})), words)
    write(tmp_path / "zone", {"web1/crontab": ROTATE, "web1/timezone": "Mars/Olympus"})
    refused(run("--hosts", tmp_path / "zone"), "names no time zone")
