-- Returns what an execution returned and wrote. No lock. Zero rows: it does not exist.
SELECT e.result::text AS result, e.output FROM {schema}.execution_status e WHERE e.id = %(id)s
