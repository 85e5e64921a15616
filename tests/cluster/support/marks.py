"""Lines that handlers and commands append outside the database. Standard library only."""

import os
import time
from typing import NamedTuple

VARIABLE = "CLUSTER_MARKS"


class Mark(NamedTuple):
    """`at`: CLOCK_MONOTONIC, one clock for all processes of the host; `pid`: who wrote the line."""

    at: float
    what: str
    job: str
    scope: str
    attempt: int
    execution: int
    pid: int
    plan_time: str


def mark(what: str, job: str, scope: str, attempt: int, *more: int | str) -> None:
    """One line, at once: O_APPEND and one write, so lines of many processes do not mix.

    `more`: execution id and plan_time.
    """
    execution, plan_time = more
    line = f"{time.monotonic()!r} {what} {job} {scope} {attempt} {execution} {os.getpid()}"
    fd = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line} {plan_time}\n".encode())
    finally:
        os.close(fd)


def read(text: str) -> list[Mark]:
    """The marks of whole lines."""
    lines = (line.split(" ") for line in text.split("\n")[:-1])
    return [
        Mark(float(at), what, job, scope, int(attempt), int(execution), int(pid), plan_time)
        for at, what, job, scope, attempt, execution, pid, plan_time in lines
    ]
