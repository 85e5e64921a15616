-- Locks a source, and returns its last applied deploy and its host. Lock: its row FOR UPDATE, waiting, so that two
-- processes apply one source one after the other.
WITH made AS (
    INSERT INTO {schema}.sources (name) VALUES (%(source)s) ON CONFLICT (name) DO NOTHING
)
SELECT s.deploy, s.host FROM {schema}.sources s WHERE s.name = %(source)s FOR UPDATE
