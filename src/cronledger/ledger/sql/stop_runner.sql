-- Records that the runner stopped in good order, and notifies the others: schedules that its last executions have
-- made due again may be due in the past. Lock: its own runners row. Raises CL006 in another ledger than the one in
-- which it began.
WITH stopped AS (
    UPDATE {schema}.runners
    SET state = 'stopped', running = 0, heartbeat_at = {schema}.db_now(), stale_after = {schema}.db_now()
    FROM {schema}_internal.require_ledger(%(ledger)s::uuid)
    WHERE id = %(runner)s
    RETURNING id
)
SELECT pg_notify('{schema}', 'rearmed') FROM stopped
