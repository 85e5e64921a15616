"""Write the pages of the site, whose links are valid there: `python -m docs.tools.site DIRECTORY`.

The pages are written for a reader of the repository. The site has those of the root as well, and
README.md is its first page. Files of `deploy` and `examples` are part of the site, so links to them
work. A link to any other file of the repository, such as a test, becomes its path.
"""

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "deploy/README.md": "deploy/index.md",
}
"""The pages outside of docs/, and their paths in the site."""
FOLDERS = ("deploy", "examples")
"""Folders whose files are in the site."""
_LINK = re.compile(r"(?P<shown>!?\[[^\]]*\])\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Replace the directory that the first argument names."""
    directory = Path(sys.argv[1])
    shutil.rmtree(directory, ignore_errors=True)
    unneeded = shutil.ignore_patterns("__pycache__", "tools", "README.md")
    shutil.copytree(ROOT / "docs", directory, ignore=unneeded)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, directory / folder, ignore=unneeded)
    for origin, site in PAGES.items():
        shutil.copy(ROOT / origin, directory / site)
    origins = {site: origin for origin, site in PAGES.items()}
    for path in sorted(directory.rglob("*.md")):
        site = path.relative_to(directory).as_posix()
        origin = origins.get(site, f"docs/{site}")
        path.write_text(adapted(path.read_text("utf-8"), origin, site), "utf-8")


def adapted(text: str, origin: str, site: str) -> str:
    """Return the page `origin` of the repository with the links of the page `site`."""
    parts = _FENCED.split(text)
    parts[::2] = (
        _LINK.sub(lambda match: _link(match, PurePosixPath(origin), site), part)
        for part in parts[::2]
    )
    return "".join(parts)


def _link(match: re.Match[str], origin: PurePosixPath, site: str) -> str:
    shown, target = match["shown"], match["target"]
    if "://" in target or target.startswith("mailto:"):
        return match[0]
    path = os.path.normpath(origin.parent / target)
    if not (ROOT / path).exists():
        raise FileNotFoundError(f"{origin}: {target}")
    if (ROOT / path / "README.md").is_file():
        path += "/README.md"
    if path in PAGES:
        path = PAGES[path]
    elif path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif not path.startswith(FOLDERS) or path.endswith(".md"):
        return f"{shown[1:-1]} (`{path}`)"
    relative = os.path.relpath(path, PurePosixPath(site).parent)
    return f"{shown}({relative}{match['anchor'] or ''})"


if __name__ == "__main__":
    main()
