"""One ping."""

from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID


class Ping(NamedTuple):
    """A request to a check.

    `url`: that of the check. `signal`: what is appended to its path, such as `start`; empty: a
    success. `run`: the id of the attempt, which the start and the end have in common; None: no
    attempt. `body`: what the service shows.
    """

    url: str
    signal: str = ""
    run: UUID | None = None
    body: str = ""

    @property
    def log_fields(self) -> dict[str, str]:
        """What a log line contains of the ping. The path of its check is a key, and is not logged.

        A job may have a URL that cannot be split.
        """
        try:
            host = urlsplit(self.url).hostname or ""
        except ValueError:
            host = ""
        return {"host": host, "signal": self.signal or "success"}
