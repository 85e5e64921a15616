-- Partitions ahead are made, those behind retention dropped; one row per action.
SELECT action, subject FROM {schema}.maintain_partitions(%(retention)s, %(width)s)
