-- After the cursors of these scopes moved without an execution: makes the gates that wait for them due to be checked,
-- and notifies the replicas. Lock: gates in key order, waiting. One row: NULL.
SELECT {schema}_internal.wake_gates(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[])
