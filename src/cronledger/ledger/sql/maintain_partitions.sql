-- Creates partitions ahead, and drops those older than the retention of the ledger. One row for each action.
SELECT action, subject FROM {schema}.maintain_partitions(%(width)s)
