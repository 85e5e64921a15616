"""F113: the site has every page and every public name, and valid links."""

import re

import pytest

import cronledger
from docs.tools.site import PAGES, adapted
from tests.docs.support.pages import ROOT

CONFIGURATION = (ROOT / "mkdocs.yml").read_text("utf-8")


def test_the_navigation_has_each_page_once() -> None:
    listed = re.findall(r"[\w/-]+\.md", CONFIGURATION.partition("\nnav:")[2])
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert sorted(listed) == sorted(pages | set(PAGES.values()))


def test_the_reference_has_each_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", page, re.M)}
    assert shown == {*cronledger.__all__} - {"__version__"}


@pytest.mark.parametrize(
    ("text", "origin", "site", "expected"),
    [
        ("[a](docs/cli.md#x)", "README.md", "index.md", "[a](cli.md#x)"),
        ("![a](docs/pictures/jobs.png)", "README.md", "index.md", "![a](pictures/jobs.png)"),
        ("[a](../SECURITY.md#b)", "docs/data.md", "data.md", "[a](security.md#b)"),
        ("[a](../docs/howto/deploy.md)", "deploy/README.md", "deploy/index.md",
         "[a](../howto/deploy.md)"),
        ("[a](../../deploy)", "docs/howto/deploy.md", "howto/deploy.md", "[a](../deploy/index.md)"),
        ("[a](../tests/marks.py)", "docs/features.md", "features.md", "a (`tests/marks.py`)"),
        ("[a](../examples/sample.toml)", "docs/cli.md", "cli.md", "[a](examples/sample.toml)"),
        ("[a](https://x.org/b.md)", "README.md", "index.md", "[a](https://x.org/b.md)"),
        ("```\n[a](docs/cli.md)\n```", "README.md", "index.md", "```\n[a](docs/cli.md)\n```"),
    ],
)  # fmt: skip
def test_links_of_the_repository_become_links_of_the_site(
    text: str, origin: str, site: str, expected: str
) -> None:
    assert adapted(text, origin, site) == expected


def test_a_link_to_a_missing_file_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/cli\.md: nothing\.png"):
        adapted("![a](nothing.png)", "docs/cli.md", "cli.md")
