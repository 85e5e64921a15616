-- Returns the payload of one execution; for operators and runners. No lock. Zero rows: the execution does
-- not exist.
SELECT p.payload FROM {schema}.execution_payloads p WHERE p.id = %(id)s
