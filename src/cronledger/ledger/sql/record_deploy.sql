-- Records that the source was applied, and on which host it may be applied from now on; NULL: on any. Lock: its row, which is held.
UPDATE {schema}.sources
SET deploy = %(deploy)s, applied_at = {schema}.db_now(), applied_by = %(requested_by)s, host = %(host)s
WHERE name = %(source)s
