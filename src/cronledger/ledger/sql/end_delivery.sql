-- Ends the delivery of alerts that is RUNNING under this token: as SUCCESS if there is no error, and otherwise as a
-- failure, which is retried unless it is final. One row: ok, already_finished or lost.
-- Lock: the execution, waiting; then as rearm_unblocked.
SELECT CASE WHEN %(code)s::text IS NULL THEN {schema}.finish(%(id)s, %(token)s)
            ELSE {schema}.fail(%(id)s, %(token)s, %(code)s, %(message)s, final => %(final)s) END AS ended
