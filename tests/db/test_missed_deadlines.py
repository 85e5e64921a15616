"""A process that had no CPU until the lease was over does not go on with its handlers.

The deadline passes while the loop is blocked; the stop of the heartbeat thread is not even queued.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from cronledger import Context
from cronledger.engine.commands.client import CommandEnd, Supervisor
from cronledger.engine.lease import Lease
from cronledger.engine.running.handlers.command import CommandHandlers
from cronledger.engine.running.handlers.http import HttpHandlers
from cronledger.engine.running.handlers.transaction import ExecutionTransaction
from cronledger.replica import Replica
from tests.db.support.sites import Site
from tests.db.support.whole_replica import Whole

AGAIN: dict[str, Any] = {"allow_stale_reentry": True}


def lapse(replica: Replica) -> None:
    """The deadline passes. A heartbeat that was sent before is not answered any more."""
    leases = replica._runtime.components.leases
    (lease,) = leases.all()
    leases.renew = lambda *_: {}  # type: ignore[method-assign]
    lease.deadline = monotonic() - 1


async def test_i7_a_claim_that_is_older_than_its_lease_starts_no_handler(whole: Whole) -> None:
    begun: list[int] = []

    async def late() -> None:
        begun.append(1)

    job = whole.job(late, stale_timeout=timedelta(seconds=60), allow_stale_reentry=True)
    async with whole.replica() as replica:
        parts = replica._runtime.components
        start = parts.executor.start

        def delayed(leases: Sequence[Lease]) -> None:
            # SIGSTOP between the COMMIT of the claim and here, for longer than the lease.
            parts.dispatcher.leased.then(start)
            start([Lease(x.claimed, x.job, x.sent - 60) for x in leases])

        parts.dispatcher.leased.then(delayed)
        ended = await whole.run(job)
    assert (ended["status"], ended["attempt"]) == ("SUCCESS", 2)
    assert begun == [1], "the first attempt was past its lease when it was to begin"


LATE: dict[str, tuple[type, str]] = {
    "nothing_is_committed": (ExecutionTransaction, "commit"),
    "no_request_is_sent": (HttpHandlers, "run"),
    "no_command_is_started": (CommandHandlers, "run"),
}


@pytest.mark.parametrize("rule", LATE)
async def test_after_the_deadline(
    whole: Whole, site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rule: str
) -> None:
    """The deadline passes right before this call. Only the second attempt has an effect."""
    whole.rows("CREATE TABLE public.effects (attempt int)")

    async def nothing_is_committed(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("INSERT INTO effects VALUES (%s)", [ctx.attempt])

    whole.job(nothing_is_committed, **AGAIN)
    site.answer("/effect")
    target = {"url": f"{site.url}/effect", "allow_private": True}
    whole.declare("no_request_is_sent", "http", target, **AGAIN)
    whole.declare("no_command_is_started", "command", writes(tmp_path), **AGAIN)
    of, name = LATE[rule]
    real = getattr(of, name)

    async def late(*given: Any) -> Any:
        monkeypatch.undo()
        lapse(replica)
        return await real(*given)

    async with whole.replica() as replica:
        monkeypatch.setattr(of, name, late)
        row = await whole.run(rule)
    assert (row["status"], row["attempt"]) == ("SUCCESS", 2)
    committed = [effect["attempt"] for effect in whole.rows("SELECT * FROM public.effects")]
    written = (tmp_path / "lines").read_text().split() if (tmp_path / "lines").exists() else []
    effects = [*committed, *written, *(path for _, path, _, _ in site.asked)]
    assert effects in ([2], ["2"], ["/effect"])
    codes = whole.rows("SELECT error_code FROM cronledger.attempts")
    assert {"error_code": "not_started"} not in codes


async def test_a_command_is_started_if_its_lease_was_renewed_after_all(
    whole: Whole, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The heartbeat's answer arrives after the supervisor has refused to start the command."""
    run = Supervisor.run
    ends: list[CommandEnd] = []

    async def late(supervisor: Supervisor, key: str, **given: Any) -> CommandEnd:
        if not ends:  # not the lease's own deadline, which would end the lease
            given["deadline"] = monotonic() - 1
        ends.append(await run(supervisor, key, **given))
        (lease,) = replica._runtime.components.leases.all()
        lease.renew(monotonic())
        return ends[-1]

    whole.declare("writes", "command", writes(tmp_path))
    async with whole.replica() as replica:
        monkeypatch.setattr(Supervisor, "run", late)
        row = await whole.run("writes")
    assert [end.reason for end in ends] == ["too_late", "exited"]
    assert (row["status"], row["attempt"]) == ("SUCCESS", 1)
    assert (tmp_path / "lines").read_text() == "1\n"


def writes(directory: Path) -> dict[str, Any]:
    """Return a command that writes the number of its attempt into a file."""
    return {"command": f"echo $CRONLEDGER_ATTEMPT >> {directory}/lines"}
