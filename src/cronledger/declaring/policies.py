"""The policies of `@app.job` as type checkers and editors see them."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta
from typing import Any, Literal, TypedDict

from cronledger.rules.model import CatchUp, Overlap
from cronledger.rules.notify import Notify
from cronledger.rules.requirements import Requirement

Provider = Callable[[], Iterable[str] | Awaitable[Iterable[str]]]
Length = str | timedelta
Failure = type[BaseException] | str


class Policies(TypedDict, total=False):
    """The policies of `@app.job`, with the names and meanings of `Job`.

    They are written from `Job` by `make docs`.
    """

    description: str | None
    owner: str | None
    labels: Mapping[str, str] | None
    runbook: str | None
    notify: str | Notify | Sequence[str | Notify] | None
    ping: str | None
    timezone: str
    calendar: str | None
    on_excluded: Literal["skip", "next", "previous"]
    day_or: bool
    dst_gap: Literal["shift", "skip"]
    dst_fold: Literal["first", "both"]
    schedule_delay: Length
    jitter: Length
    starts_at: datetime | str | None
    ends_at: datetime | str | None
    grace: Length
    catch_up: CatchUp | Literal["skip", "latest", "all"]
    catch_up_window: Length
    catch_up_limit: int
    overlap: Overlap | Literal["skip", "wait", "allow", "replace"]
    windows: bool
    requires: str | Requirement | Sequence[str | Requirement] | None
    after: str | Requirement | Sequence[str | Requirement] | None
    wait_at_most: Length | None
    start_by: time | Length | None
    finish_by: time | Length | None
    expect_duration: Length | None
    max_running: int | None
    queue: str
    on: str | Sequence[str] | None
    every: str | Sequence[str] | None
    observed: bool
    payload: Any
    run_timeout: Length | None
    stale_timeout: Length
    allow_stale_reentry: bool
    max_attempts: int
    retry_backoff: Sequence[Length]
    retry_jitter: float
    retry_on: Sequence[Failure] | None
    never_retry_on: Sequence[Failure] | None
    not_ready_on: Sequence[Failure] | None
    not_ready_after: Length | None
    keep_output: Length | None
    capture_output: bool
    scope_kind: str
    scopes: Sequence[str] | Provider | None
