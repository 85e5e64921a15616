-- Returns when this runner has to claim again: the next schedule of its queues (all woken ones count as
-- one), and the next retry or PENDING execution that was not due at `since`. `since` is before the claim
-- searched for due executions, so that what becomes due between the two searches is found by one of them.
-- Executions that are due and blocked are woken by what blocks them.
-- `due_from`: no other schedule is due before.
-- No lock. NULL: nothing is planned.
SELECT {schema}.db_clock() AS now, s.due,
       (SELECT w.at FROM {schema}_internal.next_waiting(%(since)s::timestamptz) w) AS again
FROM {schema}_internal.next_schedule(
    %(queues)s::text[], %(labels)s::text[], %(excluded_jobs)s::text[], %(due_from)s::timestamptz) s
