"""`cronledger sources`: the deploy of each source, and a file that has moved."""

from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.conftest import Cli
from tests.cli.support.results import read, refused

JOBS = '[jobs.report]\nschedule = "@hourly"\ncommand = ["true"]\n'


def test_a_file_that_has_moved_continues_after_a_rename(cli: Cli, surroundings: Path) -> None:
    old, new = surroundings / "old.toml", surroundings / "new place.toml"
    old.write_text(JOBS)
    assert cli("jobs", "apply", str(old), "--deploy", "7").exit_code == 0
    old.rename(new)
    remedy = f"`cronledger sources rename {old} '{new}'`"
    refused(cli("jobs", "apply", str(new), "--deploy", "8"), remedy)

    said = cli("sources", "rename", str(old), str(new))
    assert said.stdout == f"{old} is renamed to {new}: 1 job\n"
    (source,) = read(cli, "sources", "list")
    assert (source["source"], source["deploy"], source["jobs"]) == (str(new), 7, 1)
    done = read(cli, "jobs", "apply", str(new), "--deploy", "8")
    assert (done["added"], done["changed"], done["retired"], done["unchanged"]) == ([], [], [], 1)
    (row,) = [x for x in read(cli, "audit") if x["verb"] == "rename_source"]
    assert (row["object_kind"], row["object"]) == ("source", str(old))
    assert row["arguments"] == {"new": str(new), "jobs": 1}


def test_a_source_without_a_name_belongs_to_one_host_F109(
    cli: Cli, surroundings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = surroundings / "jobs.toml"

    def apply(host: str, jobs: str, *options: str, verb: str = "apply") -> Result:
        monkeypatch.setenv("CRONLEDGER_HOST", host)
        file.write_text(jobs)
        return cli("jobs", verb, str(file), *options)

    def names() -> list[str]:
        return [job["name"] for job in read(cli, "jobs", "list")]

    mail = JOBS.replace("report", "mail")
    assert apply("web1", JOBS).exit_code == 0
    for verb in ("apply", "diff"):
        said = apply("web2", mail, verb=verb)
        refused(
            said, "belongs to the host 'web1'", "would retire report; add mail", "--source NAME"
        )
    refused(apply("web2", JOBS.replace("hourly", "daily")), "would change report")
    assert names() == ["report"]

    assert apply("web2", JOBS).exit_code == 0, "the same file"
    assert apply("web1", JOBS.replace("hourly", "daily")).exit_code == 0
    assert apply("web2", mail, "--source", "web2").exit_code == 0
    assert apply("web1", JOBS).exit_code == 0
    assert names() == ["mail", "report"]

    assert apply("web3", mail.replace("mail", "sync"), "--force", "--deploy", "2").exit_code == 0
    assert names() == ["mail", "sync"]
    (moved,) = [x for x in read(cli, "audit") if x["verb"] == "edit_source"]
    assert (moved["object"], moved["arguments"]) == (
        str(file), {"host": "web3", "host_before": "web1"},
    )  # fmt: skip
    assert cli("sources", "rename", str(file), "all").exit_code == 0
    for host in ("web1", "web2"):
        assert apply(host, JOBS, "--source", "all", "--deploy", "2").exit_code == 0
    assert [(x["source"], x["host"]) for x in read(cli, "sources", "list")] == [
        ("all", None), ("web2", None),
    ]  # fmt: skip


def test_a_rename_replaces_no_source_that_has_jobs(cli: Cli) -> None:
    for name, job in (("a", "report"), ("b", "mail")):
        Path("jobs.toml").write_text(JOBS.replace("report", job))
        assert cli("jobs", "apply", "jobs.toml", "--source", name).exit_code == 0
    for old, new, words in (("a", "b", "source b has jobs"), ("c", "d", "source c does not exist")):
        said = cli("sources", "rename", old, new)
        assert said.exit_code != 0 and words in said.stderr
    assert [x["source"] for x in read(cli, "sources", "list")] == ["a", "b"]
    outcomes = [x["outcome"] for x in read(cli, "audit")]
    assert outcomes.count("refused") == 2
    assert cli("jobs", "remove", "mail").exit_code == 0
    assert cli("sources", "rename", "a", "b").exit_code == 0
