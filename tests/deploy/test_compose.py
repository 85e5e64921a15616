"""F112: docker-compose.yml, whose services start here without containers."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cronledger.embedded.postmaster import private_directory
from cronledger.embedded.server import Embedded, find_binaries
from cronledger.settings import VARIABLES, Settings
from tests.database import SETTINGS, chosen_binaries, fast_directory, scratch_directory
from tests.deploy.support.files import DEPLOY, ROOT, check, needs, parsed, read_yaml
from tests.deploy.test_dashboards import SOURCES as KIND_OF_SOURCE
from tests.web.support.command import address, starter

COMPOSE = read_yaml(ROOT / "docker-compose.yml")
SERVICES: dict[str, Any] = COMPOSE["services"]
OWN = {name: one for name, one in SERVICES.items() if one["image"] == "cronledger"}
ROLES = (DEPLOY / "compose" / "roles.sql").read_text("utf-8")


def environment(service: str) -> dict[str, str]:
    found: dict[str, str] = SERVICES[service].get("environment", {})
    return found


def test_the_file_matches_the_schema_of_compose() -> None:
    file = ROOT / "docker-compose.yml"
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def test_no_port_is_open_to_other_machines() -> None:
    ports = [port for one in SERVICES.values() for port in one.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_what_is_mounted_exists() -> None:
    mounted = [volume for one in SERVICES.values() for volume in one.get("volumes", ())]
    for volume in mounted:
        source = volume.partition(":")[0]
        known = (
            (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
        )
        assert known, volume


def test_our_containers_are_restricted_and_have_a_health_check() -> None:
    assert OWN.keys() == {"migrate", "replica", "metrics", "page"}
    for service in OWN.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["healthcheck"]


def test_each_login_has_the_right_group() -> None:
    urls = [url for name in OWN for key, url in environment(name).items() if key.endswith("_URL")]
    logins = {found for url in urls for found in re.findall(r"//(\w+):\1@postgres/", url)}
    assert len(urls) == 5
    assert logins - {"cronledger"} == set(re.findall(r"ROLE (\w+) LOGIN PASSWORD '\1'", ROLES))
    (source,) = read_yaml(DEPLOY / "compose" / "datasources.yml")["datasources"][1:]
    assert source["user"] == source["secureJsonData"]["password"] == "viewer"


def test_each_dashboard_has_its_kind_of_source() -> None:
    sources = read_yaml(DEPLOY / "compose" / "datasources.yml")["datasources"]
    assert {source["type"] for source in sources} == set(KIND_OF_SOURCE.values())


@pytest.mark.parametrize("name", OWN)
def test_a_service_runs_a_command_with_settings_that_exist(name: str) -> None:
    service = OWN[name]
    assert parsed(*service["command"]).info_name == service["command"][0]
    assert service["environment"].keys() <= VARIABLES
    assert (ROOT / service["build"]["dockerfile"]).exists()
    for volume in service.get("volumes", ()):
        assert volume.split(":")[1] in service["command"]


def test_the_settings_of_the_page_have_the_token_that_the_first_line_names(
    clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment("page").items():
        monkeypatch.setenv(variable, value)
    (token,) = Settings.load().web_tokens
    assert token == f"demo:operator:{sha256(b'demo').hexdigest()}"


@needs("promtool", "prometheus")
def test_promtool_accepts_the_configuration_of_prometheus(tmp_path: Path) -> None:
    for path in (DEPLOY / "compose" / "prometheus.yml", DEPLOY / "prometheus" / "rules.yml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    check("promtool", "check", "config", tmp_path / "prometheus.yml")


@pytest.fixture
def server() -> Iterator[str]:
    """The parameters of a server on which the files of the container `postgres` have run."""
    binaries = find_binaries(chosen_binaries()).directory
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with (
        scratch_directory(parent) as scratch,
        Embedded(scratch / "compose", binaries, SETTINGS) as embedded,
    ):
        dsn = embedded.start()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE ROLE cronledger SUPERUSER LOGIN")
            connection.execute("ALTER DATABASE cronledger OWNER TO cronledger")
            connection.execute(ROLES.encode())
        found = conninfo_to_dict(dsn)
        yield f"host={found['host']}&port={found.get('port', 5432)}"


@pytest.mark.slow
def test_the_services_work_together(server: str, tmp_path: Path) -> None:
    """In their order, with their commands and variables; only addresses and paths differ."""

    def variables(service: str) -> dict[str, str]:
        local = {"CRONLEDGER_HEALTH_PORT": "0", "CRONLEDGER_HEALTH_HOST": "127.0.0.1"}
        given = environment(service)
        return {
            key: re.sub(
                r":\w+@postgres/cronledger", f"@/cronledger?{server}", local.get(key, value)
            )
            for key, value in given.items()
        } | {"CRONLEDGER_LOG_FORMAT": "json"}

    def arguments(service: str) -> list[str]:
        words = [re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", word) for word in OWN[service]["command"]]
        return [word.replace("/etc/cronledger/cronledger.toml", str(ROOT / "examples/sample.toml"))
                for word in words[1:]]  # fmt: skip

    def start(service: str) -> Any:
        directory = tmp_path / service
        directory.mkdir(exist_ok=True)
        command = OWN[service]["command"][0]
        made = stack.enter_context(starter(directory, "", command))
        return made(*arguments(service), **variables(service))

    with ExitStack() as stack:
        assert start("migrate").end() == 0
        replica = start("replica")
        replica.until_event("runner_started")
        port = replica.until_event("health_listening")["port"]
        assert httpx2.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        assert (
            "cronledger_replica_build_info" in httpx2.get(f"http://127.0.0.1:{port}/metrics").text
        )
        metrics = httpx2.get(address(start("metrics")), timeout=60)
        assert "cronledger_up 1" in metrics.text
        page = address(start("page")).rstrip("/")
        assert httpx2.get(f"{page}/sign-in", timeout=60).status_code == 200
        replica.signal(signal.SIGTERM)
        assert replica.end() == 0, replica.err
