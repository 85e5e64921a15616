"""Log lines about lasting problems: one-line reasons, and a limit on their number."""

from dataclasses import dataclass, field
from time import monotonic

from cronledger.rules.masks import masked

QUIET_SECONDS = 60.0
MOST_REASONS = 10


def reason(error: BaseException) -> str:
    """Return the first line of an error, without passwords."""
    return masked(str(error).strip().partition("\n")[0]) or type(error).__name__


@dataclass(slots=True)
class LogThrottle:
    """Limits the log lines about one problem: one for each new reason, and one per minute."""

    _logged: dict[str, float] = field(default_factory=dict, init=False)

    def due(self, why: str) -> bool:
        """Return whether a log line with this reason is due, and count it as written."""
        now = monotonic()
        self._logged = {x: at for x, at in self._logged.items() if now - at < QUIET_SECONDS}
        # A reason that contains a number may be a new one each time.
        if why in self._logged or len(self._logged) >= MOST_REASONS:
            return False
        self._logged[why] = now
        return True

    def note(self, why: str) -> None:
        """Count a line with this reason as written."""
        self._logged[why] = monotonic()
