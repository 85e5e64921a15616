"""`cronledger retention`: how long the ledger keeps executions."""

import json

from tests.cli.conftest import Cli


def test_show_and_set(cli: Cli) -> None:
    assert cli("retention", "show").stdout == "keep    90d\n"
    said = cli("retention", "set", "36h", "--reason", "disk")
    assert said.stdout == "executions are kept for 1d12h (before: 90d)\n"
    shown = json.loads(cli("retention", "show", "--json").stdout)
    assert (shown["keep"], shown["set_at"][-1], "@" in shown["set_by"]) == ("1d12h", "Z", True)
    (row,) = json.loads(cli("audit", "--json").stdout)
    assert (row["verb"], row["reason"]) == ("set_retention", "disk")


def test_a_refusal_names_the_bounds_and_is_recorded(cli: Cli) -> None:
    said = cli("retention", "set", "1h")
    assert said.exit_code == 2
    assert "retention 01:00:00: it is not from 1 day to 36525 days" in said.stderr
    (row,) = json.loads(cli("audit", "--json").stdout)
    assert (row["verb"], row["outcome"]) == ("set_retention", "refused")
    assert cli("retention", "set", "soon").exit_code == 2
