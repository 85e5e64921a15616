-- The payload of one execution; for operators and runners. No lock. Zero rows: there is none of that id.
SELECT p.payload FROM {schema}.execution_payloads p WHERE p.id = %(id)s
