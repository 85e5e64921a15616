"""The metrics that rules and dashboards may use, and the metrics that an expression uses."""

import re
from collections.abc import Iterator

from tests.deploy.support.files import ROOT

OF_PROMETHEUS = ("job", "instance", "ledger")
OF_PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes")


_ROW = re.compile(
    r"^\| `(cronledger_\w+)` \|(?: (gauge|counter|histogram) \|)?([^|]*)\|", re.MULTILINE
)


def known() -> dict[str, tuple[str, ...]]:
    """Return each series that an expression may select, with its labels.

    Those of cronledger are read from docs/metrics.md, which other tests compare with the code.
    """
    found: dict[str, tuple[str, ...]] = {"up": (), **dict.fromkeys(OF_PROCESS, ())}
    for name, kind, text in _ROW.findall((ROOT / "docs" / "metrics.md").read_text("utf-8")):
        labels = tuple(re.findall(r"`(\w+)`", text))
        if kind == "histogram":
            found |= {f"{name}_bucket": (*labels, "le"), f"{name}_sum": labels}
            found[f"{name}_count"] = labels
        else:
            found[name] = labels
    return found


_TEXT = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(up|cronledger_\w+|process_\w+)\b(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")


def unknown_in(expression: str) -> Iterator[str]:
    """Yield each metric and each label of a PromQL expression that does not exist."""
    expression = re.sub(r"\$\w+", "", expression)
    bare = _TEXT.sub('""', expression)
    labels: set[str] = set(OF_PROMETHEUS)
    metrics = known()
    for name, matchers in _METRIC.findall(bare):
        if name not in metrics:
            yield name
            continue
        own = set(metrics[name]) | set(OF_PROMETHEUS)
        labels |= own
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in own:
                yield f"{name}{{{label}}}"
    for grouped in _GROUPED.findall(bare):
        yield from (x for x in re.findall(r"\w+", grouped) if x not in labels)
