"""A page with several ledgers, of which some may be away."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from cronledger.settings import Settings
from cronledger.sources.ledgers import settings_of
from cronledger.web.several import several
from tests.waiting import PATIENCE
from tests.web.support.logins import Logins


def page_of(ledgers: Mapping[str, str], logins: Logins, **settings: Any) -> Starlette:
    """The page over these databases by name, with the two logins."""
    process = Settings.load({"connect_timeout": f"{PATIENCE:.0f}s", **settings})
    return several(
        process,
        {
            name: settings_of(
                Path("ledgers.toml"), name,
                {
                    "url": url,
                    "web_read_url": logins.url(url, "viewer"),
                    "web_act_url": logins.url(url, "operator"),
                },
                process,
            )
            for name, url in ledgers.items()
        },
    )  # fmt: skip
