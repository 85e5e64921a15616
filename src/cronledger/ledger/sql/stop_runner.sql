-- The runner has left in good order. Lock: its own runners row.
UPDATE {schema}.runners
SET state = 'stopped', running = 0, heartbeat_at = {schema}.db_now(), stale_after = {schema}.db_now()
WHERE id = %(runner)s
