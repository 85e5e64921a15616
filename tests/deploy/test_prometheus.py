"""F71: the rules for Prometheus are those of the tables of docs/operations.md, and they fire."""

import re
import shutil
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cronledger.embedded.server import find_binaries
from tests.database import chosen_binaries
from tests.deploy.support.files import DEPLOY, ROOT, check, needs, read_yaml
from tests.deploy.support.metrics import unknown_in
from tests.docs.support.pages import Shell, blocks
from tests.docs.support.references import anchors

RULES = DEPLOY / "prometheus" / "rules.yml"
TESTS = DEPLOY / "prometheus" / "rules_test.yml"
DOCUMENT = ROOT / "docs" / "operations.md"
HEADING = "\n## From nothing to monitored\n"
ADDRESSES = ("127.0.0.1:8080", "127.0.0.1:9464", "127.0.0.1:9090")
"""Those of the page. Other programs of this machine may have taken them."""
needs_promtool = needs("promtool", "prometheus")
TABLES = {"cronledger-ledger": "## Alerts", "cronledger-processes": "### Alerts about processes"}


def rules(group: str | None = None) -> list[dict[str, Any]]:
    groups = read_yaml(RULES)["groups"]
    return [rule for one in groups if group in (None, one["name"]) for rule in one["rules"]]


def rows(heading: str) -> list[str]:
    """Return the names in the first column of the first table below a heading."""
    text = DOCUMENT.read_text("utf-8").partition(f"\n{heading}\n")[2]
    table = text[text.index("\n| alert") :].partition("\n\n")[0]
    lines = table.strip().splitlines()[2:]
    names = [re.match(r"\| `(\w+)`", line) for line in lines]
    assert None not in names, lines
    return [name[1] for name in names if name is not None]


def test_each_row_of_a_table_has_one_rule() -> None:
    assert {group["name"] for group in read_yaml(RULES)["groups"]} == set(TABLES)
    for group, heading in TABLES.items():
        assert [rule["alert"] for rule in rules(group)] == rows(heading)
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_a_rule_uses_metrics_that_exist_and_names_its_remedy(rule: dict[str, Any]) -> None:
    assert list(unknown_in(rule["expr"])) == []
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    summary = rule["annotations"]["summary"]
    assert summary.startswith("{{ with $labels.ledger }}Ledger {{ . }}: {{ end }}")
    queries = re.findall("printf `([^`]+)`", summary)
    assert [x for query in queries for x in unknown_in(query)] == []
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert not anchor or anchor in anchors(ROOT / page)
    assert (ROOT / page).exists()


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('cronledger_overdue{scope="a"} > 1', ["cronledger_overdue{scope}"]),
        ("sum by (scope) (cronledger_overdue)", ["scope"]),
        ("rate(cronledger_replica_claim_duration_seconds[5m])",
         ["cronledger_replica_claim_duration_seconds"]),
    ],
)  # fmt: skip
def test_unknown_metrics_and_labels_are_found(expression: str, found: list[str]) -> None:
    assert list(unknown_in(expression)) == found


def test_each_rule_is_tested_with_and_without_its_fault() -> None:
    tests = [one for test in read_yaml(TESTS)["tests"] for one in test["alert_rule_test"]]
    names = {rule["alert"] for rule in rules()}
    assert {one["alertname"] for one in tests if one.get("exp_alerts")} == names
    assert {one["alertname"] for one in tests if not one.get("exp_alerts")} == names


@needs_promtool
@pytest.mark.long
def test_promtool_accepts_the_files() -> None:
    check("promtool", "check", "rules", RULES)
    check("promtool", "check", "config", DEPLOY / "prometheus" / "scrape.yml")
    check("promtool", "test", "rules", TESTS.name, cwd=TESTS.parent)


def test_the_ledger_is_scraped_with_its_own_label_job() -> None:
    jobs = {
        one["job_name"]: one for one in read_yaml(RULES.with_name("scrape.yml"))["scrape_configs"]
    }
    # Otherwise Prometheus renames it to exported_job, and no rule about a job fires.
    assert jobs["cronledger-ledger"]["honor_labels"] is True
    used = re.findall(r'job="([^"]+)"', RULES.read_text("utf-8"))
    assert set(used) <= jobs.keys()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


@pytest.mark.slow
@needs("prometheus", "prometheus")
@needs_promtool
@needs("curl", "curl")
def test_a_failing_job_is_seen_in_prometheus(database_url: str, tmp_path: Path) -> None:
    """As the page "From nothing to monitored" shows."""
    ports = dict(zip(ADDRESSES, free_ports(len(ADDRESSES)), strict=True))

    def here(text: str) -> str:
        for address, port in ports.items():
            text = text.replace(address, f"127.0.0.1:{port}")
        health = ADDRESSES[0].partition(":")[2]
        return text.replace(f"HEALTH_PORT={health}", f"HEALTH_PORT={ports[ADDRESSES[0]]}")

    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    shutil.copytree(DEPLOY / "prometheus", clone / "deploy" / "prometheus")
    scrape = clone / "deploy" / "prometheus" / "scrape.yml"
    scrape.write_text(here(scrape.read_text("utf-8")).replace("15s", "1s"))
    page = DOCUMENT.read_text("utf-8")
    section = tmp_path / "section.md"
    section.write_text(here(page.partition(HEADING)[2].partition("\n## ")[0]), "utf-8")
    variables = {"CRONLEDGER_DATABASE_URL": database_url, "CLONE": str(clone)}
    with Shell(home, variables, find_binaries(chosen_binaries()).directory) as shell:
        for block in blocks(section):
            if block.language == "console":
                shell.read(block)
    made, rules = read_yaml(home / "rule.yaml"), read_yaml(RULES)
    assert (made["kind"], made["spec"]) == ("PrometheusRule", rules)
