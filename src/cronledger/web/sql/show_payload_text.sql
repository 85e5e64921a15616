-- Returns the payload of one execution, for operators. No lock. Zero rows: the execution does not exist.
SELECT p.payload::text AS payload FROM {schema}.execution_payloads p WHERE p.id = %(id)s
