-- After executions ended, or a claim parked schedules: makes due again the schedules that no longer wait.
-- Lock: schedules by key, SKIP LOCKED. In a transaction of its own, because executions come after schedules
-- in the lock order. One row for each schedule that no longer waits; rearmed: it is due again. Otherwise
-- another transaction has locked it. Zero rows: none waits.
SELECT r.job_name, r.scope_kind, r.scope_id, r.queue, r.rearmed
FROM {schema}_internal.rearm_unblocked(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(queues)s::text[]) r
