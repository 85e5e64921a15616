-- The deploy of a source that was applied last. Lock: its row FOR UPDATE, waiting: two that apply the
-- same source go one after the other.
WITH made AS (
    INSERT INTO {schema}.sources (name) VALUES (%(source)s) ON CONFLICT (name) DO NOTHING
)
SELECT s.deploy FROM {schema}.sources s WHERE s.name = %(source)s FOR UPDATE
