"""docs/configuration.md lists all that the models have."""

import re
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cronledger.declaring.app import Context
from cronledger.engine.running.handlers.command import environment
from cronledger.rules.error_codes import ErrorCode
from cronledger.rules.problems import EXIT_MEANINGS, Exit
from cronledger.rules.requirements import UpstreamResults
from cronledger.settings import VARIABLES
from cronledger.sources.toml import POLICIES, load
from docs.tools.configuration import ENVIRONMENT, document

pytestmark = pytest.mark.tools


def test_the_page_lists_policies_error_codes_and_settings() -> None:
    cells = set(re.findall(r"^\| `([^`]+)` \|", document(), re.MULTILINE))
    assert cells >= POLICIES
    assert cells >= {str(code) for code in ErrorCode}
    settings = document().replace(ENVIRONMENT, "")
    assert set(re.findall(r"CRONLEDGER_[A-Z_]+", settings)) == VARIABLES
    assert list(EXIT_MEANINGS) == list(Exit)


def test_it_lists_the_environment_of_a_command() -> None:
    context = MagicMock(spec=Context, plan_time=datetime(2030, 1, 1, tzinfo=UTC))
    given: dict[str, str] = {}
    for results in (UpstreamResults({"extract": ()}), UpstreamResults({}, OSError("no answer"))):
        context._upstreams = results
        given |= environment(context)
    listed = re.findall(r"^\| `([^`]+)` \|", ENVIRONMENT, re.MULTILINE)
    assert listed == list(given)


def test_its_example_can_be_read(tmp_path: Path, clean_environment: None) -> None:
    example = re.search(r"```toml\n(.*?)```", document(), re.DOTALL)
    assert example is not None
    file = tmp_path / "cronledger.toml"
    file.write_text(example[1], encoding="utf-8")
    source = load(file)
    assert [job.name for job in source.jobs] == ["nightly-backup", "refresh"]
    assert source.warnings == ()
