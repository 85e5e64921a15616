"""Scrapes of metrics: what was exposed, as values by series."""

import asyncio
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import make_conninfo

from cronledger.ledger.access import Access
from cronledger.ledger.senders import AsyncConnections
from cronledger.metrics.ledger_metrics import LedgerMetrics, encoded


class Scrape(dict[str, dict[tuple[str, ...], float]]):
    """Values by name and labels: `scrape["queue_depth"][("default",)]`, without `cronledger_`."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, tuple[str, ...]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix("cronledger_")
                self.labels[name] = tuple(sample.labels)
                self.setdefault(name, {})[tuple(sample.labels.values())] = sample.value

    def one(self, name: str) -> float:
        """The value of a metric without labels."""
        return self[name][()]

    def of_job(self, job: str = "job") -> Mapping[str, float]:
        """The values of one job by name, without `job_`."""
        return {
            name.removeprefix("job_"): values[job,]
            for name, values in self.items()
            if self.labels[name] == ("job",) and (job,) in values
        }

    @property
    def series(self) -> int:
        """The number of series."""
        return sum(len(values) for values in self.values())


def viewer(url: str) -> str:
    """The same DSN with the rights of a viewer, and no others."""
    return make_conninfo(url, options="-crole=cronledger_viewer")


async def read_text(url: str, *, job_limit: int = 1_000) -> str:
    """The metrics as a viewer reads them."""
    connections = AsyncConnections(Access(viewer(url)), "tests", 1)
    try:
        metrics = LedgerMetrics(connections.lend, "cronledger", job_limit=job_limit)
        return encoded(await metrics.read()).decode()
    finally:
        await connections.close()


def scrape(url: str, *, job_limit: int = 1_000) -> Scrape:
    """One scrape, read now."""
    return Scrape(asyncio.run(read_text(url, job_limit=job_limit)))
