"""What somebody who follows the output of an execution has seen, and what comes next.

Chunks are only there while an attempt runs. Its last output comes with its end, as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

POLL_SECONDS = 0.2
ANNOUNCE_SECONDS = 10.0
"""The time after which the interest is announced again. The replicas forget it after 30 s."""
OVERLAP = 4096
"""Characters by which a whole output is compared with what was seen of it."""


@dataclass(slots=True)
class Following:
    """`attempt`, `number`: of the last chunk that was seen.

    `ended`: the output of this attempt was seen to its end.
    """

    execution_id: int
    attempt: int = 0
    number: int = 0
    ended: bool = False
    _count: int = 0
    _last: str = ""

    @property
    def params(self) -> dict[str, int]:
        """The parameters of the statement `follow_output`."""
        return {"id": self.execution_id, "attempt": self.attempt, "number": self.number}

    def news(self, row: Mapping[str, Any]) -> str:
        """Return the text that the row of `follow_output` adds to what was seen."""
        if row["attempt"] != self.attempt:
            self.attempt, self.number, self.ended = row["attempt"], 0, False
            self._count, self._last = 0, ""
        if row["status"] == "RUNNING":
            text: str = row["text"] or ""
            self.number = row["number"] or self.number
            self._count += len(text)
            self._last = (self._last + text)[-OVERLAP:]
            return text
        ended, self.ended = self.ended, row["status"] != "PENDING"
        return "" if ended or not self.ended else self._rest(row["output"] or "")

    def _rest(self, output: str) -> str:
        """Return what follows in the whole output. If its beginning is left out, find the place."""
        if output[: self._count].endswith(self._last):
            return output[self._count :]
        place = output.rfind(self._last)
        return output[place + len(self._last) :] if place >= 0 else output
