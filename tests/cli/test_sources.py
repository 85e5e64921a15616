"""`cronledger sources`: the deploy of each source, and a file that has moved."""

from pathlib import Path

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


def test_a_rename_replaces_no_source_that_has_jobs(cli: Cli, surroundings: Path) -> None:
    for name, job in (("a", "report"), ("b", "mail")):
        (surroundings / "jobs.toml").write_text(JOBS.replace("report", job))
        assert cli("jobs", "apply", "jobs.toml", "--source", name).exit_code == 0
    for old, new, words in (("a", "b", "source b has jobs"), ("c", "d", "source c does not exist")):
        said = cli("sources", "rename", old, new)
        assert said.exit_code != 0 and words in said.stderr
    assert [x["source"] for x in read(cli, "sources", "list")] == ["a", "b"]
    outcomes = [x["outcome"] for x in read(cli, "audit")]
    assert outcomes.count("refused") == 2
    assert cli("jobs", "remove", "mail").exit_code == 0
    assert cli("sources", "rename", "a", "b").exit_code == 0
