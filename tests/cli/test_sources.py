"""`cronledger sources`: the deploy of each source, and a file that has moved."""

import json
from pathlib import Path

from tests.cli.conftest import Cli

JOBS = '[jobs.report]\nschedule = "@hourly"\ncommand = ["true"]\n'


def test_a_file_that_has_moved_continues_after_a_rename(cli: Cli, surroundings: Path) -> None:
    old, new = surroundings / "old.toml", surroundings / "new place.toml"
    old.write_text(JOBS)
    assert cli("jobs", "apply", str(old), "--deploy", "7").exit_code == 0
    old.rename(new)
    refused = cli("jobs", "apply", str(new), "--deploy", "8")
    assert refused.exit_code == 2
    assert f"`cronledger sources rename {old} '{new}'`" in refused.stderr

    said = cli("sources", "rename", str(old), str(new))
    assert said.stdout == f"{old} is renamed to {new}: 1 job\n"
    (source,) = json.loads(cli("sources", "list", "--json").stdout)
    assert (source["source"], source["deploy"], source["jobs"]) == (str(new), 7, 1)
    done = json.loads(cli("jobs", "apply", str(new), "--deploy", "8", "--json").stdout)
    assert (done["added"], done["changed"], done["retired"], done["unchanged"]) == ([], [], [], 1)
    (row,) = [x for x in json.loads(cli("audit", "--json").stdout) if x["verb"] == "rename_source"]
    assert (row["object_kind"], row["object"]) == ("source", str(old))
    assert row["arguments"] == {"new": str(new), "jobs": 1}


def test_a_rename_replaces_no_source_that_has_jobs(cli: Cli, surroundings: Path) -> None:
    for name, job in (("a", "report"), ("b", "mail")):
        (surroundings / "jobs.toml").write_text(JOBS.replace("report", job))
        assert cli("jobs", "apply", "jobs.toml", "--source", name).exit_code == 0
    refused = cli("sources", "rename", "a", "b")
    assert refused.exit_code != 0 and "source b has jobs" in refused.stderr
    unknown = cli("sources", "rename", "c", "d")
    assert unknown.exit_code != 0 and "source c does not exist" in unknown.stderr
    assert [x["source"] for x in json.loads(cli("sources", "list", "--json").stdout)] == ["a", "b"]
    outcomes = [x["outcome"] for x in json.loads(cli("audit", "--json").stdout)]
    assert outcomes.count("refused") == 2
    assert cli("jobs", "remove", "mail").exit_code == 0
    assert cli("sources", "rename", "a", "b").exit_code == 0
