"""F73: the Dockerfile, read without a Docker engine, and the probes."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.deploy.support.files import DEPLOY, ROOT, check, read_yaml
from tests.web.support.command import address, starter

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")


def ignored(path: str) -> bool:
    """Return whether .dockerignore keeps a path of the root out of the image's context."""
    patterns = (ROOT / ".dockerignore").read_text("utf-8").split()
    return any(fnmatch(path, pattern.removeprefix("**/")) for pattern in patterns)


def copied() -> set[str]:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
    return {path for line in lines for path in line.split()}


def test_copied_paths_exist_and_are_not_ignored() -> None:
    assert {"pyproject.toml", "src", "migrations"} <= copied()
    for path in copied():
        assert (ROOT / path).exists()
        assert not ignored(path)
    for unneeded in (".git", ".venv", ".mypy_cache", "tests", "docs", "__pycache__"):
        assert ignored(unneeded)


def test_the_image_contains_what_the_package_is_built_of() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*(path.partition("/")[0] for path in wheel["packages"]), *wheel["force-include"],
              "README.md", *PROJECT["project"]["license-files"]}  # fmt: skip
    assert needed <= copied()


def test_the_extras_of_the_image_exist() -> None:
    built, listed, installed = re.findall(r"\[([a-z,]+)\]'", DOCKERFILE)
    assert built == listed == installed
    assert set(built.split(",")) == {"apprise", "calendars", "http", "metrics", "tracing", "web"}
    assert set(built.split(",")) <= PROJECT["project"]["optional-dependencies"].keys()


def test_the_image_runs_as_an_ordinary_user_and_passes_signals_on() -> None:
    instructions = re.findall(r"^([A-Z]+) (.+)$", DOCKERFILE.rpartition("\nFROM ")[2], re.M)
    assert ("USER", "10001") in instructions
    assert instructions[-2:] == [("ENTRYPOINT", '["cronledger"]'), ("CMD", '["run"]')]


def test_the_health_check_of_the_image_asks_the_port_that_it_sets() -> None:
    port = re.findall(r"CRONLEDGER_HEALTH_PORT=(\d+)", DOCKERFILE)
    assert port == re.findall(r"HEALTHCHECK .*http://127\.0\.0\.1:(\d+)/healthz", DOCKERFILE)


def test_hadolint_finds_nothing() -> None:
    assert check("hadolint", DEPLOY / "Dockerfile") == ""


@pytest.mark.long
def test_the_page_serves_what_probes_request_without_a_sign_in(
    database_url: str, tmp_path: Path
) -> None:
    """Whatever name the pod has."""
    page, *_ = yaml.safe_load_all((DEPLOY / "kubernetes" / "base" / "page.yaml").read_text("utf-8"))
    (container,) = page["spec"]["template"]["spec"]["containers"]
    paths = {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
    service = read_yaml(ROOT / "docker-compose.yml")["services"]["page"]
    (test,) = [word for word in service["healthcheck"]["test"] if "urlopen" in word]
    paths.add(test.partition("127.0.0.1:8642")[2].partition("'")[0])
    arguments = [word.replace("0.0.0.0:8642", "127.0.0.1:0") for word in container["args"][1:]]
    tokens = {"CRONLEDGER_WEB_TOKENS": service["environment"]["CRONLEDGER_WEB_TOKENS"]}
    named = {"Host": "10.1.2.3"}
    with starter(tmp_path, database_url) as start:
        url = address(start(*arguments, **tokens))
        for path in paths:
            response = httpx2.get(f"{url.rstrip('/')}{path}", headers=named, timeout=60)
            assert response.status_code == 200, path
        # The same pages need a sign-in otherwise.
        assert httpx2.get(url, headers=named, timeout=60).status_code in (303, 401)
