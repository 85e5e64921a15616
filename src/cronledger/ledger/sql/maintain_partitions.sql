-- Creates partitions ahead, and drops those older than retention. One row for each action.
SELECT action, subject FROM {schema}.maintain_partitions(%(retention)s, %(width)s)
