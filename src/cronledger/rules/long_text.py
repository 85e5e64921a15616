"""A text of which the beginning and the end are kept, if all of it would be too long."""

HEAD_SHARE = 16
"""The beginning gets one part of so many."""


def left_out(count: int) -> str:
    """Return the line that stands for `count` bytes of an output."""
    return f"\n[cronledger: {count:,} bytes of the output are left out]\n"


class LongText:
    """Takes the parts of a text, and keeps `limit` bytes of it."""

    def __init__(self, limit: int) -> None:
        self._head_limit = limit // HEAD_SHARE
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, text: str, missing: int = 0) -> None:
        """Add a part. `missing`: the bytes before it that were lost, and count as left out."""
        if missing:
            self._head_limit = len(self._head)
            self._tail.clear()
        self._total += missing
        data = text.encode("utf-8", "ignore").replace(b"\0", b"")  # no half of a surrogate pair
        self._total += len(data)
        if (room := self._head_limit - len(self._head)) > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    @property
    def missing(self) -> int:
        """The number of bytes that are left out."""
        return self._total - len(self._head) - min(len(self._tail), self._tail_limit)

    def text(self) -> str:
        """Return what is kept, with a line that states how much is not."""
        tail = self._tail[max(0, len(self._tail) - self._tail_limit) :]
        parts = [self._head, tail] if self.missing else [self._head + tail]
        return left_out(self.missing).join(part.decode("utf-8", "ignore") for part in parts)
