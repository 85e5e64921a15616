"""enqueue_many does what as many calls of enqueue do, and creates messages in one statement."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.db.support.engine import Ledger
from tests.db.support.pushes import enqueue
from tests.db.support.rows import connected, start_blocked


class Item(NamedTuple):
    payload: Any = None
    key: str | None = None
    watermark: int | None = None
    scope_id: str = "global"


def enqueue_many(
    ledger: Ledger, items: Sequence[Item], job: str = "job", **more: Any
) -> list[int | None]:
    named = "".join(f", {name} => %s" for name in more)
    found: list[int | None] = ledger.one(
        "SELECT enqueue_many(%s, %s::jsonb[], %s::text[], %s::bigint[], %s::text[]" + named + ")",
        job,
        [None if i.payload is None else Jsonb(i.payload) for i in items],
        [i.key for i in items],
        [i.watermark for i in items],
        [i.scope_id for i in items],
        *more.values(),
    )
    return found


def messages(ledger: Ledger, payloads: Sequence[Any], **more: Any) -> list[int]:
    named = "".join(f", {name} => %s" for name in more)
    found: list[int] = ledger.one(
        f"SELECT enqueue_many('job', %s::jsonb[]{named})", [Jsonb(p) for p in payloads],
        *more.values(),
    )  # fmt: skip
    return found


def test_messages_become_executions_of_their_own_in_their_order(ledger: Ledger) -> None:
    ledger.job(schedule=None, payload={"of": "job"}, max_attempts=4)
    group = uuid4()
    made = messages(ledger, [{"n": n} for n in range(500)], group_id=group, requested_by="ann")
    assert ledger.values("SELECT id FROM executions ORDER BY plan_time, id") == made
    assert ledger.values("SELECT payload ->> 'n' FROM executions ORDER BY due_at") == [
        str(n) for n in range(500)
    ]
    assert ledger.values(
        "SELECT DISTINCT status, trigger, attempt, max_attempts, enqueue_key, group_id,"
        " requested_by, due_at >= plan_time AND next_attempt_at = due_at FROM executions"
    ) == [("PENDING", "enqueue", 0, 4, None, group, "ann", True)]
    assert ledger.one("SELECT pending FROM group_status(%s)", group) == 500
    (last,) = ledger.one("SELECT enqueue_many('job', ARRAY[NULL::jsonb])")
    assert ledger.one("SELECT payload FROM executions WHERE id = %s", last) == {"of": "job"}


def test_no_plan_time_is_a_whole_second_or_has_two_executions(ledger: Ledger) -> None:
    """The clock stands still at a whole second, and the ids return to the same fractions."""
    ledger.job(schedule=None)
    noon = ledger.now().replace(microsecond=0)
    ledger.show(f"timestamptz '{noon.astimezone(UTC).isoformat()}'")
    first = [i for size in (3, 1, 9, 100) for i in messages(ledger, [{}] * size)]
    first.append(enqueue(ledger) or 0)
    assert ledger.values("SELECT id FROM executions ORDER BY plan_time") == first
    assert ledger.one("SELECT max(plan_time) < %s FROM executions", noon)
    ledger.one("SELECT setval('execution_id', %s)", first[0] + 499_999 - 1)
    second = [*messages(ledger, [{}] * 20), enqueue(ledger), *messages(ledger, [{}] * 200)]
    made = ledger.values(
        "SELECT id, extract(microseconds FROM plan_time)::int % 2, x.plan_time -"
        " (SELECT e.plan_time FROM executions e WHERE e.id = x.id + 499999)"
        " FROM executions x ORDER BY id"
    )
    assert [i for i, _, _ in made] == [*first, *second]
    assert {odd for _, odd, _ in made} == {0}
    assert {before for _, _, before in made[: len(first)]} == {timedelta(seconds=1)}


def items(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Item]:
    nothing = dict.fromkeys(Item._fields, st.none()) | {"scope_id": st.sampled_from("abc")}
    return st.builds(Item, **(nothing | strategies))


PAYLOADS = st.none() | st.integers(0, 9).map(lambda n: {"n": n})
KEYS, WATERMARKS = st.sampled_from("kl"), st.integers(0, 9)
MESSAGES = items(payload=PAYLOADS)
anything = st.lists(
    MESSAGES | items(payload=PAYLOADS, key=st.none() | KEYS, watermark=st.none() | WATERMARKS),
    min_size=1, max_size=12,
)  # fmt: skip
# Without the watermarks of executions: a claim takes the input of the scope, which is compared.
STATE = (
    "SELECT scope_id, enqueue_key, payload, max_attempts, revision, queue"
    " FROM executions WHERE job_name = %s ORDER BY scope_id, enqueue_key, payload"
)
INPUT = (
    "SELECT scope_id, input_watermark, success_watermark FROM schedules WHERE job_name = %s"
    " ORDER BY 1"
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(anything, min_size=1, max_size=3))
@pytest.mark.long
def test_it_leaves_the_ledger_as_one_call_for_each_item_does(
    ledger: Ledger, batches: list[list[Item]]
) -> None:
    """Without payloads of the job, a merge within the batch is the same as one in the table."""
    ledger.values("DELETE FROM executions")
    ledger.values("DELETE FROM schedules")
    ledger.values("DELETE FROM jobs")
    for name in ("many", "single"):
        ledger.job(name, schedule=None, scope_kind="shard")
    for batch in batches:
        together = enqueue_many(ledger, batch, "many")
        one_by_one = []
        for item in batch:
            given_ = {k: v for k, v in item._asdict().items() if v is not None}
            one_by_one.append(enqueue(ledger, "single", **given_))
        assert ledger.values(STATE, "many") == ledger.values(STATE, "single")
        assert ledger.values(INPUT, "many") == ledger.values(INPUT, "single")
        same = [[i == j for j in together] for i in together]
        assert same == [[i == j for j in one_by_one] for i in one_by_one]


def test_calls_with_the_same_scopes_in_any_order_never_deadlock(ledger: Ledger) -> None:
    """Half of the scopes exist, and the others are created by whoever comes first."""
    ledger.job(schedule=None, scope_kind="tenant")
    names = [f"t{n:02}" for n in range(40)]
    for name in names[::2]:
        enqueue(ledger, scope_id=name)

    call_many = "SELECT cronledger.enqueue_many('job', scope_ids => %s)"

    def call(order: list[str]) -> None:
        with psycopg.connect(ledger.url, autocommit=True) as connection:
            for _ in range(10):
                connection.execute(call_many, [order])

    with ThreadPoolExecutor() as pool:
        list(pool.map(call, (names, names[::-1])))  # raises what a call has raised
    assert ledger.one("SELECT count(*) FROM executions") == 20 + 2 * 10 * 40


def test_an_edit_beside_a_call_that_creates_a_scope_is_no_deadlock(ledger: Ledger) -> None:
    """The call waits for scope b. The edit then waits for whoever has the row of the job first."""
    ledger.job(schedule=None, scope_kind="tenant")
    enqueue_many(ledger, [Item(scope_id=s) for s in ("a", "b")])

    enqueues = (
        "SELECT cronledger.enqueue_many('job', keys => '{k, k, k}', scope_ids => '{a, b, new}')"
    )
    edits = "UPDATE cronledger.jobs SET payload = '1'"
    with connected(ledger.url) as first, connected(ledger.url) as second:
        with psycopg.connect(ledger.url) as holder:
            holder.execute("SELECT FROM cronledger.schedules WHERE scope_id = 'b' FOR UPDATE")
            call = start_blocked(ledger.db, first, partial(first.execute, enqueues))
            edit = start_blocked(ledger.db, second, partial(second.execute, edits))
        call.result(90)
        edit.result(90)
    assert ledger.values("SELECT scope_id FROM schedules ORDER BY 1") == ["a", "b", "new"]


def test_replicas_are_notified_once(ledger: Ledger) -> None:
    ledger.job(schedule=None)
    with psycopg.connect(ledger.url, autocommit=True) as listener:
        listener.execute("LISTEN cronledger")
        messages(ledger, [{}, {}, {}])
        received = next(listener.notifies(timeout=30))
        assert received.payload == "pending"
        assert list(listener.notifies(timeout=0)) == []


def test_a_plan_time_without_a_partition_is_refused_by_name(ledger: Ledger) -> None:
    """Also when the bounds of the partition of the last call are kept in the session."""
    ledger.job(schedule=None)
    messages(ledger, [{}])
    ledger.show("timestamptz '2999-01-01 12:30:15.25Z'")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="no partition") as raised:
        messages(ledger, [{}])
    assert "maintain_partitions" in str(raised.value.diag.message_hint)
