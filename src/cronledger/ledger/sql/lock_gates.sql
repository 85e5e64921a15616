-- Locks gates that are due to be checked, at most %(most)s, and returns them with their executions.
-- Lock: schedules, executions, gates, each by key and SKIP LOCKED, until the end of the transaction. Zero rows: none is
-- due, or others have locked all of them.
SELECT g.job_name, g.scope_kind, g.scope_id, g.plan_time, g.upstream_job, g.upstream_kind, g.upstream_id,
       g.upstream_plan_time, g.revision, g.due_at, g.gated_at, g.waits_until, g.now_
FROM {schema}_internal.lock_gates(%(most)s) g
