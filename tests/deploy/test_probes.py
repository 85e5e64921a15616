"""F73: what probes request is served without a sign-in, whatever name the pod has."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.deploy.support.files import DEPLOY, ROOT
from tests.web.support.command import Start, address, starter

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]["page"]


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Start]:
    with starter(tmp_path, database_url) as made:
        yield made


def test_the_page_responds_to_its_probes(start: Start) -> None:
    page, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "page.yaml").read_text("utf-8"))
    (container,) = page["spec"]["template"]["spec"]["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    (test,) = [word for word in COMPOSE["healthcheck"]["test"] if "urlopen" in word]
    paths.add(test.partition("127.0.0.1:8642")[2].partition("'")[0])
    arguments = [word.replace("0.0.0.0:8642", "127.0.0.1:0") for word in container["args"][1:]]
    url = address(start(*arguments, **{
        "CRONLEDGER_WEB_TOKENS": COMPOSE["environment"]["CRONLEDGER_WEB_TOKENS"]
    }))  # fmt: skip
    for path in paths:
        response = httpx2.get(f"{url.rstrip('/')}{path}", headers={"Host": "10.1.2.3"}, timeout=60)
        assert response.status_code == 200, path
    # The same pages need a sign-in otherwise.
    assert httpx2.get(url, headers={"Host": "10.1.2.3"}, timeout=60).status_code in (303, 401)
