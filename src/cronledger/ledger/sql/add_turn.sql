-- Adds the row of a step in turns, in a transaction of its own, because another process waits for its end. No result.
-- Lock: the row.
INSERT INTO {schema}.turns (step) VALUES (%(step)s) ON CONFLICT (step) DO NOTHING
