-- One schedule row, waiting for whoever holds it: after a COMMIT of unknown outcome the old backend may
-- still be at it, and all locks of its transaction go at once. One, because a transaction that waits for
-- a schedule while it holds another can deadlock with a client's, whose order nobody knows.
-- Lock: schedules FOR NO KEY UPDATE, waiting. Zero rows: the schedule is gone.
SELECT s.job_name
FROM {schema}.schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
FOR NO KEY UPDATE
