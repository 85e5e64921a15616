"""F112: the workflows run what a developer runs, and the documents name what they test."""

import re
import tomllib
from typing import Any

import yaml

from tests.deploy.support.files import ROOT, check

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS: dict[str, Any] = {file.stem: yaml.safe_load(file.read_text("utf-8")) for file in FILES}
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")
SUPPORTED = SECURITY.partition("## Supported versions")[2].partition("\n## ")[0]


def test_the_files_match_the_schema_of_workflows() -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *FILES)


def test_each_command_is_a_target_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    commands = [
        step["run"]
        for workflow in WORKFLOWS.values()
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert {"make test", "make release SUITE=1", "make dates INSTANT=all"} <= set(commands)
    for command in commands:
        found = re.fullmatch(r"make ([a-z-]+)(?: [A-Z]+=\S+)*", command)
        assert found is not None, command
        assert found[1] in targets, command


def test_the_matrix_is_that_of_the_classifiers_and_of_the_documents() -> None:
    jobs = WORKFLOWS["test"]["jobs"]
    versions = jobs["python"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    classified = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.M)
    assert versions == classified == re.findall(r"\b3\.\d+\b", SUPPORTED)
    images = jobs["postgresql"]["strategy"]["matrix"]["image"]
    servers = [image.removeprefix("postgres:").removesuffix("-alpine") for image in images]
    assert servers == re.findall(r"(?<!\.)\b1\d\b", SUPPORTED)


def test_the_job_of_the_upgrade_test_has_the_tags_of_earlier_releases() -> None:
    checkout, *_ = WORKFLOWS["test"]["jobs"]["suite"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0


def test_only_the_job_that_publishes_may_write() -> None:
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert job.get("permissions") == ({"id-token": "write"} if name == "publish" else None)
