"""Progress lines of commands and SQL, such as `::cronledger progress 40/100 text`.

Like the supervisor, it uses the standard library only.
"""

import re
from typing import Any

MARK = b"::cronledger progress "
LONGEST = 1024
"""A longer line is output."""
_LINE = re.compile(rb"::cronledger progress (\d{1,18})(?:/(\d{1,18}))?(?: (.*?))?\r?\Z", re.DOTALL)


class ProgressLines:
    """Takes the progress lines out of an output that arrives in parts.

    `newest`: the last progress, as a part of an event, until it is fetched.
    """

    def __init__(self) -> None:
        self._held = b""  # an unfinished line that may become a progress line
        self._inside = False  # the output before it did not end with a newline
        self._newest: dict[str, Any] | None = None

    def take(self, data: bytes) -> bytes:
        """Return the rest of the output so far. `data` is empty at the end of the output."""
        if not data:
            rest, self._held = self._held, b""
            return b"" if self._reads(rest) else rest
        data, self._held = self._held + data, b""
        first, newline, _ = data.partition(b"\n") if self._inside else (b"", b"", b"")
        start = len(first) + len(newline)
        if self._inside and not newline:
            return data
        lines = data[start:].split(b"\n")
        last = lines.pop()
        if MARK in data:
            lines = [line for line in lines if not self._reads(line)]
        if last and len(last) <= LONGEST and (last.startswith(MARK) or MARK.startswith(last)):
            self._held, last = last, b""
        self._inside = bool(last)
        return data[:start] + b"".join(line + b"\n" for line in lines) + last

    def fetch(self) -> dict[str, Any] | None:
        """Return the newest progress since the last call, or None."""
        found, self._newest = self._newest, None
        return found

    def _reads(self, line: bytes) -> bool:
        found = progress_of(line)
        if found is not None:
            self._newest = found
        return found is not None


def progress_of(line: bytes) -> dict[str, Any] | None:
    """Return the progress that a line reports, or None if it is not a progress line."""
    if not line.startswith(MARK) or (found := _LINE.match(line)) is None:
        return None
    done, total, text = found.groups()
    return {
        "done": int(done),
        "total": None if total is None else int(total),
        "text": None if text is None else text.decode("utf-8", "replace"),
    }
