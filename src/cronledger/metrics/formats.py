"""The format of metrics: the label of the ledger, and the choice by the header Accept."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


def format_for(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the encoder of the format that `accept` prefers, and its content type.

    The format is plain text if `accept` is empty or names a version that is not a number.
    """
    try:
        return choose_encoder(accept)
    except (TypeError, ValueError):
        return choose_encoder("")


def labelled(families: Iterable[Metric], ledger: str | None) -> Iterator[Metric]:
    """Yield the families, whose samples have the label `ledger` unless it is None."""
    for family in families:
        if ledger is not None:
            family.samples = [
                sample._replace(labels={**sample.labels, "ledger": ledger})
                for sample in family.samples
            ]
        yield family
