"""Generate docs/events.md from the table of events and from the calls that log them."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.tools.markdown import NOTE, table

SOURCES = Path(__file__).parents[2] / "src" / "cronledger"
EVENTS: Mapping[str, str] = tomllib.loads((SOURCES / "logs" / "events.toml").read_text("utf-8"))
"""Every event that the package logs, and its meaning."""
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error"}
LEVELS["exception"] = "error"

INTRODUCTION = """\
Each line that a replica logs is one of these events. On a terminal a line is text; otherwise it is
one JSON object with `time`, `level`, `event`, and the values of the event. Lines about an execution
also contain `job`, `scope`, `execution_id`, `plan_time` and `attempt`, and `trace_id` if the
attempt is [traced](howto/traces.md). Names of events and values are stable: alerts may depend on
them. `log_level` and `log_format` are [settings](configuration.md#settings-of-a-runner).
"""


def document() -> str:
    """Return the text of docs/events.md."""
    levels = logged()
    rows = [
        (f"`{name}`", ", ".join(levels[name]), meaning) for name, meaning in sorted(EVENTS.items())
    ]
    body = table(("event", "level", "meaning"), rows)
    return "\n".join(["# Log events\n", NOTE, INTRODUCTION, body])


def logged() -> dict[str, list[str]]:
    """Return the levels at which each event is logged, from the source."""
    found: dict[str, set[str]] = {}
    for path in SOURCES.rglob("*.py"):
        for level, name in _calls(path):
            found.setdefault(name, set()).add(level)
    order = list(dict.fromkeys(LEVELS.values()))
    return {name: sorted(levels, key=order.index) for name, levels in found.items()}


def _calls(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log"), attr=method),
                args=[ast.Constant(value=str(name)), *_],
            ) if method in LEVELS:
                yield LEVELS[method], name
