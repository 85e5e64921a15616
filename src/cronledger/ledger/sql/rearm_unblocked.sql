-- After executions ended, or a claim parked schedules: makes due again the schedules that no longer wait.
-- Lock: schedules by key, SKIP LOCKED. In a transaction of its own, because executions come after schedules
-- in the lock order. One row for each schedule that is due again.
SELECT r.job_name, r.scope_kind, r.scope_id
FROM {schema}_internal.rearm_unblocked(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(queues)s::text[]) r
