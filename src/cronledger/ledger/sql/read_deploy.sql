-- Returns the last applied deploy of a source, and its host. No lock. Zero rows: it was never applied.
SELECT s.deploy, s.host FROM {schema}.sources s WHERE s.name = %(source)s
