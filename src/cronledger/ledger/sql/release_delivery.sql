-- Returns a delivery of alerts to PENDING, because its runner drains. One row: ok, already_finished or lost.
-- Lock: the execution, waiting; then as rearm_unblocked.
SELECT {schema}.release(%(id)s, %(token)s) AS released
