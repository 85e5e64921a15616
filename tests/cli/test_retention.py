"""`cronledger retention`: how long the ledger keeps executions."""

from tests.cli.conftest import Cli
from tests.cli.support.results import read


def test_show_and_set(cli: Cli) -> None:
    assert cli("retention", "show").stdout == "keep    90d\n"
    said = cli("retention", "set", "36h", "--reason", "disk")
    assert said.stdout == "executions are kept for 1d12h (before: 90d)\n"
    shown = read(cli, "retention", "show")
    assert (shown["keep"], shown["set_at"][-1], "@" in shown["set_by"]) == ("1d12h", "Z", True)
    (row,) = read(cli, "audit")
    assert (row["verb"], row["reason"]) == ("set_retention", "disk")
