-- Locks the schedules of the runner's queues that a claim has to plan. First those that are due, the
-- oldest first, because slots may not be enough for all of them. Then a number of those that were woken:
-- they need no slot to be planned, so they have a limit of their own. Each woken job has the same share of
-- it, so that one job with 100,000 scopes does not delay the edit of another. No more than ten shares are
-- tried for each job: an edit in progress locks all of its schedules, and skipping 100,000 locked rows
-- takes 0.1 s.
-- Of the first ones also those that are due within `ahead`; ahead_of: when these are due.
-- Lock: schedules FOR NO KEY UPDATE, SKIP LOCKED, because another replica has the locked ones. No join and
-- no condition on jobs: what cannot start is parked, and is not in this index. excluded_jobs: jobs whose
-- handler another runner has and this one does not; NOT IN, because it has a hash in every plan. Zero
-- rows: nothing is due.
WITH RECURSIVE open AS MATERIALIZED (
    SELECT q.name FROM unnest(%(queues)s::text[]) AS q(name)
    WHERE NOT EXISTS (SELECT FROM {schema}.queues p WHERE p.name = q.name AND p.paused_at IS NOT NULL)
), names AS (
    SELECT o.name AS queue, (
        SELECT s.job_name FROM {schema}.schedules s WHERE s.woken AND s.queue = o.name
        ORDER BY s.job_name LIMIT 1) AS job
    FROM open o
    UNION ALL
    SELECT n.queue, (
        SELECT s.job_name FROM {schema}.schedules s
        WHERE s.woken AND s.queue = n.queue AND s.job_name > n.job ORDER BY s.job_name LIMIT 1)
    FROM names n WHERE n.job IS NOT NULL
), edited AS MATERIALIZED (
    SELECT n.queue, n.job FROM names n
    WHERE n.job IS NOT NULL AND n.job NOT IN (SELECT h.job FROM unnest(%(excluded_jobs)s::text[]) h(job))
    LIMIT %(max_woken)s
)
SELECT x.job_name, x.scope_kind, x.scope_id, x.queue, x.planned_through, x.planned_revision,
       x.next_plan_time, x.retired_at, x.returned_at, x.woken,
       CASE WHEN NOT x.woken AND x.next_due_at > {schema}.db_now() THEN x.next_due_at END AS ahead_of
FROM (
    SELECT d.*
    FROM open o
    CROSS JOIN LATERAL (
        SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through, s.planned_revision,
               s.next_plan_time, s.retired_at, s.returned_at, s.woken, s.next_due_at
        FROM {schema}.schedules s
        WHERE NOT s.woken AND s.queue = o.name AND s.next_due_at <= {schema}.db_now() + %(ahead)s
          AND s.job_name NOT IN (SELECT h.job FROM unnest(%(excluded_jobs)s::text[]) h(job))
        ORDER BY s.next_due_at LIMIT %(max_rows)s
        FOR NO KEY UPDATE OF s SKIP LOCKED
    ) d
    UNION ALL
    SELECT w.*
    FROM (SELECT e.*, greatest(1, %(max_woken)s / count(*) OVER ()) AS share FROM edited e) e
    CROSS JOIN LATERAL (
        SELECT s.*
        FROM (
            SELECT c.scope_kind, c.scope_id FROM {schema}.schedules c
            WHERE c.woken AND c.queue = e.queue AND c.job_name = e.job
              AND c.next_due_at <= {schema}.db_now()
            ORDER BY c.scope_kind, c.scope_id LIMIT 10 * e.share
        ) c
        CROSS JOIN LATERAL (
            SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.planned_through,
                   s.planned_revision, s.next_plan_time, s.retired_at, s.returned_at, s.woken,
                   s.next_due_at
            FROM {schema}.schedules s
            WHERE (s.job_name, s.scope_kind, s.scope_id) = (e.job, c.scope_kind, c.scope_id)
              AND s.woken AND s.queue = e.queue AND s.next_due_at <= {schema}.db_now()
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        ) s
        LIMIT e.share
    ) w
) x
ORDER BY x.woken, x.next_due_at, x.job_name, x.scope_kind, x.scope_id
