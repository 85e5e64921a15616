-- Notifies the programs that wait for these executions that they have changed. It belongs into a transaction
-- after the change, because a COMMIT with a NOTIFY takes a lock of the whole server.
-- No lock of rows. One row for each execution.
SELECT pg_notify('{schema}_ended', id::text) FROM unnest(%(ids)s::bigint[]) AS u(id)
