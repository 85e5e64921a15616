-- Returns the last applied deploy of a source. No lock. Zero rows: it was never applied.
SELECT s.deploy FROM {schema}.sources s WHERE s.name = %(source)s
