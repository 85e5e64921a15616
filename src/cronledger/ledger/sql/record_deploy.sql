-- Records that the source was applied. Lock: its row, which is held.
UPDATE {schema}.sources
SET deploy = %(deploy)s, applied_at = {schema}.db_now(), applied_by = %(requested_by)s
WHERE name = %(source)s
