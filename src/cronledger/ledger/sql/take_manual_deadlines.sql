-- Removes and returns manual executions whose deadlines are to be computed, the oldest first. Lock: their rows, which
-- nobody else has. Zero rows: there are none.
SELECT m.job_name, m.scope_kind, m.scope_id, m.plan_time, m.revision, m.created_at
FROM {schema}_internal.take_manual_deadlines(%(most)s) m
