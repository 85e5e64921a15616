"""How long before the instant at which a schedule is due a claim of it begins."""

from datetime import timedelta

LEAST = timedelta(milliseconds=8)
MOST = timedelta(milliseconds=98)
"""A claim that waits for its instant delays what becomes due meanwhile by this time at most."""
SPARE = timedelta(milliseconds=5)
"""The time of the database is only estimated, and no two claims take equally long."""
MARGIN = timedelta(milliseconds=2)


class Lead:
    """The lead of the next claim, which is as long as the preparation of the last one.

    Reading and planning 500 jobs takes about 60 ms. A claim that begins this much earlier has only
    its writes left at the instant.
    """

    def __init__(self) -> None:
        self.time = LEAST

    @property
    def ahead(self) -> timedelta:
        """How far ahead of now the claim locks schedules."""
        return self.time + MARGIN

    def adapt(self, preparation: float) -> None:
        """Adapt to a claim ahead that sent its writes `preparation` seconds after its reads."""
        self.time = min(MOST, max(LEAST, timedelta(seconds=preparation) + SPARE))
