"""F71: a reader who follows "From nothing to monitored" sees a failing job in Prometheus."""

import shutil
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from cronledger.embedded.server import find_binaries
from tests.database import chosen_binaries
from tests.deploy.support.files import DEPLOY, ROOT, needs, read_yaml
from tests.docs.support.pages import Shell, blocks

pytestmark = [
    pytest.mark.slow,
    needs("prometheus", "prometheus"),
    needs("promtool", "prometheus"),
    needs("curl", "curl"),
]

HEADING = "\n## From nothing to monitored\n"
ADDRESSES = ("127.0.0.1:8080", "127.0.0.1:9464", "127.0.0.1:9090")
"""Those of the page. Other programs of this machine may have taken them."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


def test_a_failing_job_is_seen_in_prometheus(database_url: str, tmp_path: Path) -> None:
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
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    section = tmp_path / "section.md"
    section.write_text(here(page.partition(HEADING)[2].partition("\n## ")[0]), "utf-8")
    variables = {"CRONLEDGER_DATABASE_URL": database_url, "CLONE": str(clone)}
    with Shell(home, variables, find_binaries(chosen_binaries()).directory) as shell:
        for block in blocks(section):
            if block.language == "console":
                shell.read(block)
    made, rules = read_yaml(home / "rule.yaml"), read_yaml(DEPLOY / "prometheus" / "rules.yml")
    assert (made["kind"], made["spec"]) == ("PrometheusRule", rules)
