"""`Client`: the ledger for programs without an event loop."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, overload
from uuid import UUID

from cronledger.client import explanations
from cronledger.client.waiting import polls
from cronledger.explain.why import Answer
from cronledger.ledger import calls
from cronledger.ledger.access import Access, dsn_of
from cronledger.ledger.callers import SyncCaller
from cronledger.ledger.calls import Cancelled, Retried
from cronledger.ledger.reports import Reports
from cronledger.ledger.senders import CallerSender, HasSender, OwnSender, Sender
from cronledger.ledger.values import Execution, SkippedRange
from cronledger.rules.cron import Firing
from cronledger.rules.model import GLOBAL
from cronledger.settings import Settings
from cronledger.tracing.interface import tracing_of


class Client(HasSender[Sender]):
    """The ledger for a program: `with Client(url) as client: client.enqueue("ship", {"id": 7})`.

    With `url`, each call is a transaction of its own. The client opens a connection when a call
    needs one, keeps it for the next call, and has at most ten. Threads may share the client. A
    forked process opens connections of its own; fork while no call is in progress. `close`, and
    the end of a `with` block, close the connections.

    With `connection`, each call is part of the transaction of the caller, and the client commits
    nothing. It is a psycopg connection, or a connection or session of SQLAlchemy or Django that
    uses psycopg 3.

    Without either, the url is that of `settings`, which are by default those of the environment.

    Each method raises LedgerError if the ledger refuses the call (NotFoundError: an unknown job,
    scope or execution). Its text has the remedy. It raises psycopg.Error for a connection that
    fails, and for a conflict with another transaction. A refusal on `connection` aborts the
    transaction of the caller, as each statement does that fails.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: SyncCaller | None = None,
        settings: Settings | None = None,
    ) -> None:
        if url is not None and connection is not None:
            raise TypeError("Client has a url and a connection; pass one of them")
        settings = settings or Settings.load()
        tracing = tracing_of(settings)
        if connection is not None:
            super().__init__(CallerSender(connection, settings.schema_name, tracing))
            return
        access = Access.from_settings(settings, dsn_of(settings) if url is None else url)
        listens = access.for_listening(settings)
        schema, lock_timeout = settings.schema_name, settings.lock_timeout
        super().__init__(OwnSender(access, schema, lock_timeout, listens, tracing))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's own connections. A later call raises RuntimeError."""
        self.sender.close()

    # --- input ----------------------------------------------------------------------------------

    @overload
    def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> int: ...
    @overload
    def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        watermark: int | None,
        group_id: UUID | None = None,
    ) -> int | None: ...
    def enqueue(
        self,
        job: str,
        payload: object = None,
        *,
        key: str | None = None,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        watermark: int | None = None,
        group_id: UUID | None = None,
        due_at: datetime | None = None,
    ) -> int | None:
        """Enqueue work for a job, and return the id of the execution that does it.

        `payload` is any value that pydantic can write as JSON; None stands for the payload of the
        job. With `key`, the work merges into the PENDING execution of this key. With only a
        `watermark`, the result is None if a success covers it already. A missing scope is created
        if the job permits it. `scope_kind`: by default that of the job. `due_at`: when the work is
        due, by default now; refused with `key` and `watermark`, because what is merged is due now.

        Raises PayloadInvalidError for a payload that is not JSON or is too large, and ValueError
        for a `due_at` without a time zone.
        """
        return self.sender.send(
            calls.enqueue(
                job, payload, key=key, scope=scope, scope_kind=scope_kind, watermark=watermark,
                group_id=group_id, due_at=due_at,
            )
        )  # fmt: skip

    @overload
    def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        group_id: UUID | None = None,
    ) -> list[int]: ...
    @overload
    def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        watermarks: Sequence[int | None] | None,
        group_id: UUID | None = None,
    ) -> list[int | None]: ...
    def enqueue_many(
        self,
        job: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str | None] | None = None,
        scopes: Sequence[str] | None = None,
        scope_kind: str | None = None,
        watermarks: Sequence[int | None] | None = None,
        group_id: UUID | None = None,
    ) -> list[Any]:
        """Enqueue an item for each payload in one transaction, and return their ids in order.

        `keys`, `scopes` and `watermarks` have an element for each payload. The items of one scope
        and key are merged: their ids are the same. With `scopes`, at most 100,000 items.

        Raises PayloadInvalidError, which names the payload, and ValueError for another number of
        elements.
        """
        made = self.sender.send_all(
            calls.enqueue_many(
                job, payloads, keys=keys, scopes=scopes, scope_kind=scope_kind,
                watermarks=watermarks, group_id=group_id,
            )
        )  # fmt: skip
        return [one for part in made for one in part]

    # --- operator functions ---------------------------------------------------------------------

    def trigger(
        self,
        job: str,
        payload: object = None,
        *,
        scope: str = GLOBAL,
        scope_kind: str | None = None,
        force: bool = False,
        require_runner: bool = False,
    ) -> int:
        """Create one execution of a job, due now, and return its id.

        It is refused if the job is retired or paused (`force`: not if it is paused), if an
        execution is RUNNING and the overlap of the job is skip, and, with `require_runner`, if no
        live replica can run it.

        Raises PayloadInvalidError for a payload that is not JSON or is too large.
        """
        return self.sender.send(
            calls.trigger(
                job, payload, scope=scope, scope_kind=scope_kind, force=force,
                require_runner=require_runner,
            )
        )  # fmt: skip

    def wait(self, execution_id: int, timeout: float | None = None) -> Execution:
        """Wait until an execution has ended and is not retried by itself, and return it.

        The client polls. The pause between two polls is a tenth of the time already waited, at
        most a second. After 0.1 s, a client with a url also LISTENs, and the replica that ends the
        execution notifies it. `timeout`: in seconds; None: no limit.

        Raises TimeoutError, which names the execution, and RuntimeError inside a transaction of
        the caller, where the end could never be seen.
        """
        return deque(polls(self.sender, execution_id, timeout), maxlen=1).pop()

    def pause(self, job: str, reason: str | None = None, *, until: datetime | None = None) -> bool:
        """Pause a job until it is resumed, or until an instant. Running executions finish.

        Return False if the job was paused already; then `reason` and `until` are replaced.
        """
        return self.sender.send(calls.pause(job, reason, until=until))

    def resume(self, job: str) -> bool:
        """Resume a job. Return False if it was not paused."""
        return self.sender.send(calls.resume(job))

    def cancel(self, execution_id: int) -> Cancelled:
        """Request that an execution ends, and return what became of the request.

        `cancelled`: it was waiting, and has ended. `requested`: it is RUNNING, and its replica
        stops it. `already_finished`: it had ended. `busy`: its row is locked; call again.
        """
        return self.sender.send(calls.cancel(execution_id))

    def retry(self, execution_id: int, *, force: bool = False) -> Retried:
        """Give a FAILED or CANCELLED execution one more attempt, which is due now.

        `brought_forward`: it was awaiting a retry. It is refused if the end of the last attempt is
        unknown and the job is not reentrant. `force` overrides this.
        """
        return self.sender.send(calls.retry(execution_id, force=force))

    # --- reports --------------------------------------------------------------------------------

    def execution(self, execution_id: int) -> Execution:
        """Return one execution. Raises NotFoundError."""
        return self.sender.send(calls.execution(execution_id))

    def executions(
        self,
        job: str | None = None,
        *,
        scope: str | None = None,
        statuses: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Return executions with plan_time in [`since`, `until`), the newest rows first.

        `statuses`: such as `["FAILED"]`; by default all. Raises ValueError for an unknown one.
        """
        return self.sender.send(
            calls.executions(
                job, scope=scope, statuses=statuses, since=since, until=until, limit=limit
            )
        )

    def skips(
        self,
        job: str | None = None,
        *,
        scope: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
    ) -> list[SkippedRange]:
        """Return skips whose range reaches into [`since`, `until`), the latest first."""
        return self.sender.send(
            calls.skips(job, scope=scope, since=since, until=until, limit=limit)
        )

    def why(
        self,
        job: str,
        at: datetime,
        *,
        until: datetime | None = None,
        scope: str | None = None,
        limit: int = 20,
    ) -> list[Answer]:
        """Explain why a job ran, or did not run, in [`at`, `until`), with a paragraph per scope.

        `until`: by default one minute after `at`. Without `scope`, the first scopes are explained,
        at most `limit`.
        """
        return explanations.why(self._reports(), job, at=at, until=until, scope=scope, limit=limit)

    def next(
        self,
        job: str,
        count: int = 10,
        *,
        after: datetime | None = None,
        scope: str | None = None,
    ) -> list[Firing]:
        """Return the first `count` firings of a job after an instant, by default after now.

        There are none if the job has no schedule. A pause or a retirement is not considered.
        `scope` decides `H` in the schedule. Raises ValueError if the schedule in the ledger is
        invalid.
        """
        return explanations.next_firings(
            self._reports(), job, count=count, after=after, scope=scope
        )

    def _reports(self) -> Reports:
        return Reports(lambda name, params: self.sender.send(calls.report(name, params)))
