-- Locks one schedule row, and waits for its holder. After a COMMIT of unknown outcome the old backend may
-- still be working; all locks of its transaction are released at once. Only one, because a transaction
-- that waits for a schedule while it holds another can deadlock with a client, whose order is unknown.
-- Lock: schedules FOR NO KEY UPDATE, waiting. Zero rows: the schedule does not exist any more.
SELECT s.job_name
FROM {schema}.schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
FOR NO KEY UPDATE
