-- What the last attempt of one execution wrote, its tail. No lock. Zero rows: there is no such
-- execution; NULL: nothing was stored.
SELECT e.id, e.status, e.output FROM {schema}.execution_status e WHERE e.id = %(id)s
