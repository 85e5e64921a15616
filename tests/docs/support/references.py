"""What a Markdown page refers to, and the test whether each of it exists."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from cronledger.cli import main
from cronledger.ledger.migrate import script
from cronledger.settings import VARIABLES
from docs.tools.commands import commands
from docs.tools.configuration import ENVIRONMENT
from docs.tools.events import EVENTS
from tests.db.support.django_process import configure
from tests.docs.support.pages import ROOT

FOLDERS = ("deploy", "docs", "examples", "migrations", "src", "tests")
SENDERS = ROOT / "src" / "cronledger" / "engine" / "alerting" / "senders.py"
"""The module that sets variables for the command of a channel."""
READERS_OWN = {"jobs.py", "conftest.py", "test_report.py", "report.sh", "weekly.sh"}
"""Files of a reader's project."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`|^```\w*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^[\w.-]+(?:/[\w.*-]+)*/?(?<!\.)$")
NAME = re.compile(r"(?<!current_setting\(')\bcronledger((?:\.[a-z_]\w*)+)")
NO_NAMES = ("toml", "service", "service.d", "schema.json")
"""Ends of files that are called cronledger."""
COMMAND = re.compile(r"(?:^|[$;(\"]|&& )\s*(?:[A-Z_]+=\S+ )*cronledger ((?:[^|>#;&\n]|(?<=\[)\|)*)")
VARIABLE = re.compile(r"\bCRONLEDGER_[A-Z_]*[A-Z]\b")
TARGET = re.compile(r"\bmake ([a-z]+)")
EVENT = re.compile(r"\blogs (?:an? )?`([a-z_]+)`")
TEST = re.compile(r"\btest_\w+\*?")


def pages() -> list[Path]:
    found = [*ROOT.glob("*.md")]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob("*.md")
    return sorted(found)


def dead_references(page: Path) -> list[str]:
    text = page.read_text("utf-8")
    dead = list(_dead_links(page, FENCE.sub("", text)))
    for inline, block in CODE.findall(text):
        if inline:
            dead += [f"`{inline}`: {why}" for why in _dead_in_code(inline.strip())]
        dead += [f"`{inline or block}`: {why}" for why in _dead_names(inline or block)]
    dead += [f"{name}: no such event" for name in EVENT.findall(text) if name not in EVENTS]
    dead += [f"{name}: no such variable" for name in VARIABLE.findall(text) if not _is_set(name)]
    return dead


def _dead_links(page: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(file):
            yield f"{target}: no such heading"


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text("utf-8"))):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        repeated = sum(1 for one in found if re.fullmatch(rf"{re.escape(words)}(-\d+)?", one))
        found.add(f"{words}-{repeated}" if repeated else words)
    return found


def _dead_in_code(text: str) -> Iterator[str]:
    if FILE.match(text) and _names_file(text) and not _exists(text):
        yield "no such file"
    for name in TEST.findall(text):
        if f"def {name.rstrip('*')}" not in _tests():
            yield f"no test {name}"
    for group, word in re.findall(r"^(jobs|executions|queues) ([a-z]+)", text):
        if f"{group} {word}" not in _commands():
            yield f"no command {group} {word}"


def _dead_names(text: str) -> Iterator[str]:
    for words in COMMAND.findall(text):
        yield from _dead_command(words)
    for name in NAME.findall(text):
        if (
            name[1:] not in NO_NAMES
            and not _is_object(name[1:])
            and not _is_python(f"cronledger{name}")
        ):
            yield f"no object cronledger{name}"
    for target in TARGET.findall(text):
        if target not in _targets():
            yield f"no make target {target}"
    for module in re.findall(r"python3? -m ([\w.]+)", text):
        if module.startswith(("tests", "docs", "cronledger")) and not _is_module(module):
            yield f"no module {module}"


def _dead_command(words: str) -> Iterator[str]:
    given = words.split()
    if not given or not re.fullmatch(r"[a-z][a-z-]*", given[0]):
        return  # `cronledger --help`, `cronledger COMMAND`
    name = next((n for n in (" ".join(given[:2]), given[0]) if n in _commands()), None)
    groups = {one.partition(" ")[0] for one in _commands()}
    if name is None:
        if not (given[0] in groups and len(given) == 1):
            yield f"no command {words}"
        return
    options = {option for one in _commands()[name].params for option in one.opts}
    for option in re.findall(r"(?<![\w-])--[a-z-]+", words):
        if option not in options and option not in ("--help", "--version"):
            yield f"{name} has no option {option}"


@cache
def _commands() -> dict[str, click.Command]:
    root = click.Context(main, info_name="cronledger")
    return {c.command_path.removeprefix("cronledger "): c.command for c in commands(root)}


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def _names_file(text: str) -> bool:
    ends = text.endswith((".py", ".sql", ".md", ".sh"))
    return ends or ("/" in text and text.partition("/")[0] in FOLDERS)


def _exists(text: str) -> bool:
    name = text.rstrip("/")
    found = (fnmatch(path, name) or fnmatch(path, f"*/{name}") for path in _files())
    return text in READERS_OWN or any(found)


@cache
def _files() -> list[str]:
    found = [path.name for path in ROOT.iterdir()]
    for folder in FOLDERS:
        found.append(folder)
        found += [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*")]
    return found


@cache
def _tests() -> str:
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]
    names = [path.stem for path in (ROOT / "tests").rglob("test_*.py")]
    return "\n".join([*texts, *(f"def {name}" for name in names)])


def _is_set(name: str) -> bool:
    own = name.startswith(("CRONLEDGER_TEST_", "CRONLEDGER_KILL_", "CRONLEDGER_STATEFUL"))
    given = name in ENVIRONMENT or f'"{name}"' in SENDERS.read_text("utf-8")
    return name in VARIABLES or given or (own and name in _tests())


@cache
def _scripts() -> str:
    return script()


def _is_object(name: str) -> bool:
    return re.search(rf"\bcronledger\.{name.partition('.')[0]}\b", _scripts()) is not None


def _is_python(name: str) -> bool:
    if name.startswith("cronledger.contrib.django"):
        configure()  # its modules read the settings
    module, rest = name, ""
    while module:
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".strip(".")
            continue
        return not rest or hasattr(found, rest.partition(".")[0])
    return False


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists() or _is_python(name)
