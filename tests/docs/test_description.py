"""F112: the page of the package index, which shows the description of the packages."""

import re
import tomllib
from typing import Any

from tests.audit import TOOLS
from tests.docs.support.pages import ROOT, blocks, relative_links
from tests.release.environments import EXTRAS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
HOOK: Any = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]


def part_of_readme() -> str:
    """Return what the description takes from README.md; fragments cut it as the hook does."""
    fragment = HOOK["fragments"][0]
    text: str = (ROOT / fragment["path"]).read_text("utf-8")
    assert text.count(fragment["end-before"]) == 1
    return text.partition(fragment["end-before"])[0]


def test_f112_the_description_has_no_relative_link_and_all_code_of_the_readme() -> None:
    text = part_of_readme()
    assert relative_links(text)
    for substitution in HOOK["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    assert relative_links(text) == []
    assert "The web page shows the ledger" in text
    assert all(block.text in text for block in blocks(ROOT / "README.md"))


def test_f112_the_newest_section_of_the_changelog_is_that_of_the_version_and_dated() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, (version, date), *_ = re.findall(r"^## \[(.+?)\](.*)$", changelog, re.M)
    assert first == ("Unreleased", "")
    assert version == PROJECT["project"]["version"]
    assert re.fullmatch(r" - \d{4}-\d\d-\d\d", date)


def test_f112_a_release_tries_each_extra_for_users() -> None:
    assert EXTRAS.keys() == PROJECT["project"]["optional-dependencies"].keys() - {*TOOLS}
