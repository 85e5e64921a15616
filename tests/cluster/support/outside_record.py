"""Whether the ledger and what handlers wrote outside it agree."""

from collections import Counter
from itertools import pairwise

from tests.cluster.support.harness import Cluster, instant


def assert_every_plan_time_ran_once(cluster: Cluster) -> None:
    """I1, I2, of jobs that fire each second: no plan_time is missing or ran twice."""
    assert_accounted_for(cluster)
    rows = [row for row in cluster.executions() if row["trigger"] == "schedule"]
    ran = Counter((m.job, m.scope, instant(m.plan_time)) for m in cluster.marks("start"))
    assert set(ran.values()) == {1}
    assert {(r["job_name"], r["scope_id"], instant(r["plan_time"])) for r in rows} == set(ran)
    assert {row["status"] for row in rows} == {"SUCCESS"}
    assert {row["attempt"] for row in rows} == {1}


def assert_accounted_for(cluster: Cluster, without: tuple[str, ...] = ()) -> None:
    """I2, of jobs that fire each second, `without` some: each second is a row or in a skip."""
    ledger = {
        (r["job_name"], r["scope_id"], instant(r["plan_time"]))
        for r in cluster.executions()
        if r["trigger"] == "schedule" and r["job_name"] not in without
    }
    # On a starved machine a second may pass unseen: then it is a skip that says so, and no hole.
    skips = cluster.rows("SELECT to_jsonb(k) FROM cronledger.skips k")
    assert {row["reason"] for row in skips} <= {"superseded", "overlap"}
    for scope in {key[:2] for key in ledger}:
        times = [at for *of, at in ledger if tuple(of) == scope]
        for row in skips:
            if (row["job_name"], row["scope_id"]) == scope:
                first, last = instant(row["from_plan_time"]), instant(row["through_plan_time"])
                times += [first + second for second in range(round(last - first) + 1)]
        assert all(after - before == 1 for before, after in pairwise(sorted(times))), scope
