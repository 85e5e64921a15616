"""A replica of the test's own process that claims by itself."""

from typing import Any

from cronledger.declaring.app import App
from cronledger.replica import Replica
from cronledger.settings import Settings
from cronledger.testing import Ledger


def live(ledger: Ledger, *apps: App, **settings: Any) -> Replica:
    """Return a replica with these settings, which has not started."""
    return Replica(*apps, url=ledger.url, settings=Settings(**settings))
