-- The deploy of a source that was applied last. No lock. Zero rows: it was never applied.
SELECT s.deploy FROM {schema}.sources s WHERE s.name = %(source)s
