"""One command as its supervisor sees it: its lease, its processes, its output and its end.

Like the supervisor, it uses the standard library only.
"""

import codecs
from time import monotonic
from typing import Any

from cronledger.engine.commands.progress_lines import ProgressLines

KILL_LEAD = 0.1
"""Seconds between SIGKILL and the deadline, at which no process of the command is alive."""
NEVER = float("inf")
SHOW_EVERY = 2.0
FOLLOWED_EVERY = 0.1
"""Seconds between two parts of the output, and while somebody follows it."""


class Command:
    """One command from its fork until `ended` is sent. `pid` is also its group and its session.

    `lost`: its guardian died before it, and its processes are children of the supervisor.
    """

    def __init__(self, request: dict[str, Any], now: float) -> None:
        self.key: str = request["key"]
        self.argv: list[str] = request["argv"] or ["/bin/sh", "-c", request["shell"]]
        self.cwd: str | None = request["cwd"]
        self.grace: float = request["grace"]
        self.tail_bytes: int = request["tail_bytes"]
        self.pid = self.guardian = self.control = self.report = -1
        self.output = self.exec_status = -1
        self.reported = b""  # an unfinished line of the guardian
        self.group: str | None = None  # the directory of its control group
        self.left = ""  # the number and the names of the processes that it left running
        self.has_begun = self.gone = self.lost = False
        self.killing_by = NEVER  # when the guardian must have confirmed a kill
        self.tail = bytearray()
        self.progress = ProgressLines()
        self.total_bytes = 0
        self.error: str | None = None  # why it could not start
        self.exit_code: int | None = None  # negative: the signal; None while the process lives
        self.reason: str | None = None  # why the supervisor ends it; None: it exits by itself
        self.drain_by = self.gone_by = NEVER
        self.next_at = NEVER  # when it is checked again
        self.shown: bool = request.get("shown", False)
        self.follow_until: float = request.get("follow_until", 0.0)
        self.show_at = NEVER  # when the next part of its output is sent
        self.shown_bytes = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.extend(request["deadline"], now)

    def extend(self, deadline: float, now: float) -> None:
        """Move the end of the lease to `deadline`, unless the command is ending already.

        SIGTERM is sent `grace` seconds before SIGKILL, but not in the first five sixths of the time
        left. Otherwise a short lease with a long grace would send it at once.
        """
        if self.reason is None and self.exit_code is None:
            self.kill_at = deadline - KILL_LEAD
            self.term_at = self.kill_at - min(self.grace, max(0.0, self.kill_at - now) / 6)
            self.next_at = self.term_at

    def keep(self, data: bytes) -> None:
        self.total_bytes += len(data)
        self.tail += data
        if len(self.tail) > 2 * self.tail_bytes:
            del self.tail[: len(self.tail) - self.tail_bytes]
        if self.shown and data and self.show_at == NEVER:
            now = monotonic()
            self.show_at = now + (FOLLOWED_EVERY if now < self.follow_until else SHOW_EVERY)

    def follow(self, until: float) -> None:
        """Send the output at once until that instant."""
        self.follow_until = until
        if self.show_at != NEVER:
            self.show_at = min(self.show_at, monotonic() + FOLLOWED_EVERY)

    def news(self) -> dict[str, Any]:
        """Return the output since the last call, as far as it is kept. None is due afterwards."""
        self.show_at = NEVER
        new = min(self.total_bytes - self.shown_bytes, len(self.tail))
        missing = self.total_bytes - self.shown_bytes - new
        self.shown_bytes = self.total_bytes
        if missing:
            self.decoder.reset()
        text = self.decoder.decode(bytes(self.tail[len(self.tail) - new :])).replace("\0", "")
        return {"event": "output", "key": self.key, "text": text, "missing": missing}

    def ended(self) -> dict[str, Any]:
        self.keep(self.progress.take(b""))
        if self.left and self.reason is None:
            self._note_left()
        tail = bytes(self.tail[max(0, len(self.tail) - self.tail_bytes) :])
        if self.total_bytes > len(tail):  # do not begin inside a UTF-8 character
            start = next((i for i, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
            tail = tail[start:]
        code = self.exit_code
        return {
            "event": "ended",
            "key": self.key,
            "returncode": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "reason": self.reason or ("exited" if code is not None else "guardian_died"),
            "output": tail.decode("utf-8", "replace").replace("\0", ""),
            "missing": self.total_bytes - len(tail),
        }

    def _note_left(self) -> None:
        """Append a line to the output, because a job may not know why its daemon has ended."""
        count, _, names = self.left.partition(" ")
        many = "1 process" if count == "1" else f"{count} processes"
        line = f"cronledger: ended {many} that the command left running: {names}\n"
        begin = "\n" if self.tail and not self.tail.endswith(b"\n") else ""
        self.keep(f"{begin}{line}".encode())
