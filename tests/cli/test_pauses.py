"""`cronledger pauses`, and what `next` and `jobs resume` tell of pauses."""

import pytest

from tests.cli.conftest import Ask, Cli
from tests.cli.support.results import done, read, refused


@pytest.fixture(autouse=True)
def jobs(ask: Ask) -> None:
    """A job that fires each hour in two scopes, one each day, and one without a schedule."""
    ask(
        "INSERT INTO cronledger.jobs"
        " (name, handler, schedule, owner, labels, queue, scope_kind, scopes) VALUES"
        " ('hourly', 'external', '0 * * * *', 'ann', '{\"tier\": \"batch\"}', 'q', 'k', '{a,b}'),"
        " ('daily', 'external', '30 3 * * *', 'ann', NULL, 'q', 'global', NULL),"
        " ('manual', 'external', NULL, 'bob', NULL, 'default', 'global', NULL)"
    )


def preview(cli: Cli, *arguments: str) -> dict[str, tuple[int, int]]:
    rows = read(
        cli, "pauses", "plan", "--reason", "x", "--dry-run",
        "--from", "2031-05-07T00:00:00Z", "--until", "2031-05-08T00:00:00Z", *arguments,
    )  # fmt: skip
    return {row["job"]: (row["scopes"], row["firings"]) for row in rows}


def test_a_preview_counts_what_would_be_skipped(cli: Cli, ask: Ask) -> None:
    """Both ends are in the pause, so 25 firings of an hourly job are in a day."""
    for options, found in {
        "--all": {"daily": (1, 1), "hourly": (2, 50), "manual": (1, 0)},
        "--queue q --label tier=batch": {"hourly": (2, 50)}, "--job daily --owner bob": {},
    }.items():  # fmt: skip
        assert preview(cli, *options.split()) == found, options
    assert not ask("SELECT id FROM cronledger.pauses")


def test_a_preview_without_an_end_counts_a_week(cli: Cli) -> None:
    shown = done(
        cli,
        "pauses",
        "plan",
        "--all",
        "--reason",
        "x",
        "--dry-run",
        "--from",
        "2031-05-07T00:00:00Z",
    )
    assert (
        "345 firings of 3 jobs will be skipped in the first 1w; nothing was planned" in shown.stdout
    )


def test_a_pause_is_planned_listed_changed_and_withdrawn(cli: Cli) -> None:
    planned = cli(
        "pauses", "plan", "--queue", "q", "--label", "tier=batch", "--from", "2031-05-07T18:00:00Z",
        "--reason", "freeze",
    )  # fmt: skip
    assert planned.exit_code == 0, planned.output
    assert planned.stdout == (
        "pause 1: 1 job from 2031-05-07T18:00:00Z until it is ended; "
        "`cronledger pauses end 1` ends it\n"
    )
    assert not planned.stderr
    (row,) = read(cli, "pauses", "list")
    assert (row["state"], row["selection"], row["jobs"]) == ("planned", "queue q, tier=batch", 1)
    warned = cli("next", "hourly")
    assert "pause 1 is planned, from 2031-05-07" in warned.stderr
    around = read(cli, "next", "hourly", "--from", "2031-05-07T16:30:00Z", "--count", "3")
    notes = [firing["note"] for firing in around]
    assert notes == ["", "skipped by pause 1: freeze", "skipped by pause 1: freeze"]
    assert not cli("next", "daily").stderr
    for result in ("changed", "unchanged"):
        changed = cli("pauses", "change", "1", "--until", "2031-05-08")
        assert changed.stdout == f"pause 1: {result}\n"
    assert cli("pauses", "end", "1").stdout == "pause 1: ended\n"
    assert cli("pauses", "end", "1").stdout == "pause 1: was over already\n"
    assert not read(cli, "pauses", "list")
    assert [row["state"] for row in read(cli, "pauses", "list", "--all")] == ["withdrawn"]
    of_no_job = cli("pauses", "plan", "--label", "tier=btch", "--reason", "x")
    assert of_no_job.stderr.startswith("Warning: no job matches now; ")


def test_bad_input_is_refused(cli: Cli) -> None:
    for line, said in (
        ("plan --reason x", "select jobs by --job"),
        ("plan --reason x --all --queue q", "select jobs by --job"),
        ("plan --reason x --job daly", "did you mean 'daily'?"),
        ("plan --reason x --all --from 2001-01-01", "it is in the past"),
        ("plan --reason x --all --until 2001-01-01 --dry-run", "is not after from"),
        ("change 1", "give --from, --until or --reason"),
        ("end 1", "pause 1 does not exist"),
    ):
        found = cli("pauses", *line.split())
        refused(found, said, code=found.exit_code or -1)


def test_a_job_that_a_wide_pause_holds_names_the_remedy(cli: Cli, ask: Ask) -> None:
    assert cli("pauses", "plan", "--all", "--reason", "freeze").exit_code == 0
    ask("SELECT cronledger_internal.begin_pauses(), cronledger_internal.settle_pauses(100)")
    ask("SELECT cronledger_internal.settle_pauses(100)")
    refused(cli("jobs", "resume", "daily"), "pause 1 holds it", "cronledger pauses end 1", code=1)
